//! The shell alone, around scripted kernels: what it promises of bytes, closes, handoffs, time and turns, on both drivers.

mod bytes_and_closes;
mod handoffs;
mod harness;
mod turns;

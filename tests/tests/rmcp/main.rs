//! An rmcp server of twenty tools, moved by one line from rmcp's transport to ours.

mod both;
mod ours;
mod resume;
mod sides;
mod tools;

//! An rmcp server of twenty tools, moved by one line from rmcp's transport to ours.

mod both;
mod july;
mod july_ours;
mod model;
mod ours;
mod resume;
mod sides;
mod tools;

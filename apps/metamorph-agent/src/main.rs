//! The in-memory system's program.

fn main() {}

//! Bad input through the whole stack: each ends as the right error, with a message that names the cause and what to do, is tried
//! again, and is over by itself when its cause is gone.

mod agent;
mod bmc;
mod deletion;
mod faults;
mod image;
mod journal;
mod owner;
mod secrets;

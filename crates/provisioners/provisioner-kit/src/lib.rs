//! What a provisioner is tested with: a record, a history and a machine record in memory, as durable as the test, on tokio's clock, which tests
//! pause. Killing a server is making another provisioner over the same memory.

mod clock;
mod history;
mod machine;
mod record;

pub use clock::paused_clock;
pub use history::MemoryHistory;
pub use machine::MemoryMachine;
pub use record::{MemoryRecord, Write};

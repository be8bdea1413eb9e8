//! Machines of a worker in another process, each of which has a number in its address.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use provisioner_kit::Condition;

use super::{CheckedMachine, Machines, Troubler, condition};
use crate::transport::Connect;

/// All conditions of machines.
const CONDITIONS: [Condition; 10] = [
    Condition::Slow,
    Condition::Failing,
    Condition::Refusing,
    Condition::Silent,
    Condition::Busy,
    Condition::Forgotten,
    Condition::Another,
    Condition::Foreign,
    Condition::Occupied,
    Condition::Unread,
];

/// Machines by number, in those conditions that the worker says they can be in.
pub struct Numbered {
    template: String,
    count: AtomicU64,
    connect: Arc<dyn Connect>,
    troubler: Arc<Troubler>,
    possible: BTreeSet<Condition>,
}

impl Numbered {
    /// Those with addresses of this form, `{n}` for the number, from this number on: a worker's machines outlive a check, and each run needs another one. It
    /// asks the worker, and waits for its answers.
    ///
    /// # Errors
    /// When no thread can be had.
    pub fn from(template: String, first: u64, connect: Arc<dyn Connect>) -> io::Result<Self> {
        let troubler = Arc::new(Troubler::start(Arc::clone(&connect))?);
        let nobody = template.replace("{n}", &first.to_string());
        let possible = CONDITIONS.into_iter().filter(|one| troubler.set(&nobody, condition(*one), false)).collect();
        Ok(Self { template, count: AtomicU64::new(first + 1), connect, troubler, possible })
    }
}

impl Machines for Numbered {
    fn machine(&self) -> Box<dyn CheckedMachine> {
        let number = self.count.fetch_add(1, Ordering::Relaxed).to_string();
        Box::new(One {
            address: self.template.replace("{n}", &number),
            connect: Arc::clone(&self.connect),
            troubler: Arc::clone(&self.troubler),
            possible: self.possible.clone(),
        })
    }
}

struct One {
    address: String,
    connect: Arc<dyn Connect>,
    troubler: Arc<Troubler>,
    possible: BTreeSet<Condition>,
}

impl CheckedMachine for One {
    fn address(&self) -> String {
        self.address.clone()
    }

    fn connect(&mut self) -> Arc<dyn Connect> {
        Arc::clone(&self.connect)
    }

    fn can_be(&self, condition: Condition) -> bool {
        self.possible.contains(&condition)
    }

    fn set(&mut self, which: Condition, on: bool) {
        self.troubler.set(&self.address, condition(which), on);
    }
}

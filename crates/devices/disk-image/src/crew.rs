//! Worker threads for writing, so that several writes are in flight at once.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::error::Error;

/// Number of worker threads; each has one write in flight.
const WORKERS: usize = 4;

/// Jobs that wait for a thread.
const QUEUE: usize = 4;

/// Hands out jobs.
pub(crate) struct Crew<'a, J> {
    jobs: SyncSender<J>,
    failure: &'a Mutex<Option<Error>>,
}

impl<J> Crew<'_, J> {
    /// Gives a job to a thread, waiting for one to be free.
    ///
    /// # Errors
    /// If an earlier job failed: [`with_crew`] then gives that job's error instead of this one.
    pub(crate) fn give(&self, job: J) -> Result<(), Error> {
        let stopped = Error::Pipeline { stage: "write" };
        if self.failure.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
            return Err(stopped);
        }
        self.jobs.send(job).map_err(|_| stopped)
    }
}

/// Runs `body`; its jobs are executed by threads that own one tool each, and all of them have finished when this returns. The first error of a job
/// takes precedence over the result of `body`.
pub(crate) fn with_crew<J: Send, W, T>(
    tool: impl Fn() -> Result<W, Error> + Sync,
    work: impl Fn(&mut W, J) -> Result<(), Error> + Sync,
    body: impl FnOnce(&Crew<'_, J>) -> Result<T, Error>,
) -> Result<T, Error> {
    let failure = Mutex::new(None);
    let (jobs, queue) = sync_channel::<J>(QUEUE);
    let queue = Mutex::new(queue);
    let result = thread::scope(|scope| {
        let crew = Crew { jobs, failure: &failure };
        for _ in 0..WORKERS {
            let worker = thread::Builder::new().name("write".into()).spawn_scoped(scope, || {
                let done = tool().and_then(|mut tool| {
                    while let Some(job) = take(&queue) {
                        work(&mut tool, job)?;
                    }
                    Ok(())
                });
                if let Err(error) = done {
                    failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                    // Drain the queue, so that no sender blocks on it.
                    while take(&queue).is_some() {}
                }
            });
            worker.map_err(|_| Error::Pipeline { stage: "write" })?;
        }
        body(&crew)
    });
    match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => result,
    }
}

fn take<J>(queue: &Mutex<Receiver<J>>) -> Option<J> {
    queue.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn all_jobs_are_done_and_the_first_failure_counts() {
        let sum = AtomicU64::new(0);
        let add = |_: &mut (), job: u64| {
            sum.fetch_add(job, Ordering::Relaxed);
            if job == 1000 { Err(Error::corrupt("job")) } else { Ok(()) }
        };
        with_crew(|| Ok(()), add, |crew| (0..100).try_for_each(|job| crew.give(job))).unwrap();
        assert_eq!(sum.load(Ordering::Relaxed), 4950);
        let error = with_crew(
            || Ok(()),
            add,
            |crew| {
                crew.give(1000)?;
                loop {
                    crew.give(1)?;
                }
                #[allow(unreachable_code, reason = "gives the closure its type")]
                Ok(())
            },
        );
        assert!(matches!(error, Err(Error::CorruptImage { .. })));
        let error = with_crew(
            || Err::<(), _>(Error::Cancelled),
            add,
            |crew| loop {
                crew.give(1)?
            },
        );
        assert!(matches!(error, Err::<(), _>(Error::Cancelled)));
    }
}

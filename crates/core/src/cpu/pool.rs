//! A few threads that run one closure together.
//!
//! This is no work-stealing pool, because entering one from outside queues a job, which allocates now and then; here a step
//! allocates nothing, and the calling thread works too. Work is split by the closure itself:
//! `pieces.rs` says which thread takes which coordinates.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// A closure whose lifetime was erased; valid while its round is running.
pub(super) type Task = &'static (dyn Fn() + Sync);

#[derive(Default)]
struct Round {
    number: u64,
    task: Option<Task>,
    running: usize,
    panicked: bool,
    quit: bool,
}

#[derive(Default)]
struct Shared {
    round: Mutex<Round>,
    begin: Condvar,
    done: Condvar,
}

impl Shared {
    /// Locks the round. A panic never happens while the lock is held, so a poisoned lock is still consistent.
    fn lock(&self) -> MutexGuard<'_, Round> {
        self.round.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Threads that wait for rounds of work.
pub(super) struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

/// The error of a round in which a thread panicked.
#[derive(Debug)]
pub(super) struct Panicked;

impl Pool {
    /// A pool of `threads` threads, the caller's included.
    pub(super) fn new(threads: usize) -> std::io::Result<Pool> {
        let mut pool = Pool { shared: Arc::default(), workers: Vec::new() };
        for index in 1..threads {
            pool.spawn(format!("corrnoise-{index}"), || ())?;
        }
        Ok(pool)
    }

    /// A pool of `threads` threads that work in the background, at a low priority: whoever trains comes first.
    pub(super) fn in_background(threads: usize) -> std::io::Result<Pool> {
        let mut pool = Pool { shared: Arc::default(), workers: Vec::new() };
        for index in 0..threads {
            pool.spawn(format!("corrnoise-ahead-{index}"), lower_priority)?;
        }
        Ok(pool)
    }

    fn spawn(&mut self, name: String, first: fn()) -> std::io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let run = move || {
            first();
            work(&shared);
        };
        self.workers.push(std::thread::Builder::new().name(name).spawn(run)?);
        Ok(())
    }

    /// The number of threads that take part, the caller's included.
    pub(super) fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Runs `task` on the calling thread alone: waking another one costs some ten microseconds.
    pub(super) fn run_alone(task: &(dyn Fn() + Sync)) -> Result<(), Panicked> {
        catch_unwind(AssertUnwindSafe(task)).map_err(|_| Panicked)
    }

    /// Runs `task` on every thread at once and returns when all are done.
    pub(super) fn run(&mut self, task: &(dyn Fn() + Sync)) -> Result<(), Panicked> {
        // SAFETY: only the lifetime changes. The workers' last use of the reference comes before they count themselves
        // out of `running`, this function returns only once that count is zero, and it cannot unwind before: the
        // caller's own share runs under `catch_unwind`. `&mut self` keeps a second round from starting meanwhile.
        let erased: Task = unsafe { std::mem::transmute::<&(dyn Fn() + Sync), Task>(task) };
        // SAFETY: as said, the task outlives its round.
        unsafe { self.start(erased) };
        let own = catch_unwind(AssertUnwindSafe(task));
        let others = self.wait();
        if own.is_err() { Err(Panicked) } else { others }
    }

    /// Lets the workers run `task`, and returns at once.
    ///
    /// # Safety
    /// No other round is running, and `task` is valid until [`Pool::wait`] has returned.
    pub(super) unsafe fn start(&self, task: Task) {
        {
            let mut round = self.shared.lock();
            round.number += 1;
            round.task = Some(task);
            round.running = self.workers.len();
            round.panicked = false;
        }
        self.shared.begin.notify_all();
    }

    /// Waits until no worker runs a task any more, and says whether one panicked since the last start.
    pub(super) fn wait(&self) -> Result<(), Panicked> {
        let mut round = self.shared.lock();
        while round.running > 0 {
            round = self.shared.done.wait(round).unwrap_or_else(PoisonError::into_inner);
        }
        round.task = None;
        if round.panicked { Err(Panicked) } else { Ok(()) }
    }
}

/// Makes the calling thread nicer than those that train. Where it is refused, the thread works all the same.
fn lower_priority() {
    #[cfg(target_os = "linux")]
    // SAFETY: on Linux, 0 is the calling thread, and nothing but its priority changes.
    unsafe {
        let nice = libc::getpriority(libc::PRIO_PROCESS, 0);
        libc::setpriority(libc::PRIO_PROCESS, 0, (nice + 10).min(19));
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.lock().quit = true;
        self.shared.begin.notify_all();
        for worker in self.workers.drain(..) {
            // A worker catches the panics of its tasks; there is nothing left to report.
            let _ = worker.join();
        }
    }
}

fn work(shared: &Shared) {
    let mut seen = 0;
    loop {
        let task = {
            let mut round = shared.lock();
            while round.number == seen && !round.quit {
                round = shared.begin.wait(round).unwrap_or_else(PoisonError::into_inner);
            }
            if round.quit {
                return;
            }
            seen = round.number;
            round.task
        };
        let panicked = task.is_some_and(|task| catch_unwind(AssertUnwindSafe(task)).is_err());
        let mut round = shared.lock();
        round.panicked |= panicked;
        round.running -= 1;
        if round.running == 0 {
            // Several readers may wait for work in the background.
            shared.done.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn every_thread_runs_every_round_once() {
        for threads in [1, 2, 5] {
            let mut pool = Pool::new(threads).unwrap();
            for round in 1..200 {
                let count = AtomicUsize::new(0);
                pool.run(&|| {
                    count.fetch_add(round, Ordering::Relaxed);
                })
                .unwrap();
                assert_eq!(count.into_inner(), round * threads);
            }
        }
    }

    #[test]
    fn a_panic_is_reported_and_the_pool_lives_on() {
        let mut pool = Pool::new(3).unwrap();
        let caller = std::thread::current().id();
        for on_caller in [true, false] {
            assert!(pool.run(&|| assert!((std::thread::current().id() == caller) != on_caller)).is_err());
            assert!(pool.run(&|| ()).is_ok());
        }
        assert!(Pool::run_alone(&|| panic!("caught")).is_err());
    }
}

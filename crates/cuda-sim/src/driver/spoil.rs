//! What a test spoils on purpose, on its own thread: a record or wait that is left out, or a call that fails.

use std::cell::Cell;

use crate::status::{Failure, Status};

/// The functions that put work in an order.
const ORDERS: [&str; 5] =
    ["cuEventRecord", "cuStreamWaitEvent", "cuEventSynchronize", "cuStreamSynchronize", "cuCtxSynchronize"];

/// The functions that explain a failure, which never fail themselves.
const TEXTS: [&str; 2] = ["cuGetErrorName", "cuGetErrorString"];

/// What is done to the call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    /// One of [`ORDERS`] succeeds and does nothing.
    LeaveOut,
    /// One call fails and does nothing.
    Fail,
    /// A call and all after it fail and do nothing.
    FailFrom,
}

#[derive(Clone, Copy)]
struct Spoil {
    how: How,
    nth: u64,
    seen: u64,
    hit: Option<&'static str>,
}

thread_local! {
    static SPOIL: Cell<Option<Spoil>> = const { Cell::new(None) };
}

/// Begins to count the calls of this thread, the `nth` of which, from 0, is spoilt; or spoils none from now on.
pub(super) fn set(how: Option<How>, nth: u64) {
    SPOIL.set(how.map(|how| Spoil { how, nth, seen: 0, hit: None }));
}

/// How many calls were counted so far, and the name of the first that was spoilt.
pub(super) fn get() -> (u64, Option<&'static str>) {
    SPOIL.get().map_or((0, None), |spoil| (spoil.seen, spoil.hit))
}

/// What becomes of a call that is made now: nothing special, or an outcome in place of its own.
pub(super) fn outcome(name: &'static str) -> Option<Result<(), Failure>> {
    let mut spoil = SPOIL.try_with(Cell::get).ok().flatten()?;
    let counts = match spoil.how {
        How::LeaveOut => ORDERS.contains(&name),
        How::Fail | How::FailFrom => !TEXTS.contains(&name),
    };
    if !counts {
        return None;
    }
    let at = spoil.seen;
    spoil.seen += 1;
    let hits = at == spoil.nth || (at > spoil.nth && spoil.how == How::FailFrom);
    if hits {
        spoil.hit = spoil.hit.or(Some(name));
    }
    SPOIL.set(Some(spoil));
    hits.then(|| match spoil.how {
        How::LeaveOut => Ok(()),
        _ => Err(Failure::new(Status::Unknown, format!("call {at} fails, as a test asked"))),
    })
}

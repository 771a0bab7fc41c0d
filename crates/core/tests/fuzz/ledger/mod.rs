//! Ledgers that were damaged, edited or moved about, and the starts that they must still allow or refuse.
//!
//! A claim is intact if its file is whole, its check bits and its BLAKE3 are right, and its name is that of its run and incarnation.
//! - A start at step s is accepted exactly if no claim whose name says that it is of the same run and incarnation is damaged, and no
//!   intact one counts a step from s on, or is held by a process that is alive, on a coordinate of the start.
//! - A new incarnation is always accepted.
//! - Nothing that counts a step is removed, and what was accepted is recorded.
//!
//! Neither hash nor check bits hold a secret. Whoever edits a claim and makes them anew has made another intact claim, and whoever
//! removes or renames one has removed what it says: no case expects that this is noticed.

mod change;
mod made;
mod truth;

use crate::{Random, cases, timed};
use change::{Entry, change};
use made::{Begin, Runs};
use std::path::Path;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(1);

/// The names of a folder's entries.
fn names(folder: &Path) -> Vec<std::ffi::OsString> {
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect()
}

/// Runs one case; returns whether the start was accepted, and whether it asked for a new incarnation.
fn check(runs: &Runs, case: u64) -> [bool; 2] {
    let mut random = Random::new(case);
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().join("ledger");
    std::fs::create_dir(&folder).unwrap();
    let mut entries = random.pick(&runs.ledgers).clone();
    for _ in 0..random.below(5) {
        change(&mut random, runs, &mut entries);
    }
    entries.iter().for_each(|(name, entry)| entry.make(&folder.join(name)));
    // Another process, of this run or another, that is alive.
    let other = (random.below(3) == 0).then(|| (runs.attempt(&mut random), random.below(3)));
    let before = names(&folder);
    let mut other = other.and_then(|(attempt, steps)| Some((runs.start(&folder, &attempt).ok()?, steps)));
    if let Some((mechanism, steps)) = &mut other {
        (0..*steps).for_each(|_| _ = made::step(mechanism));
    }
    let alive: Vec<_> = names(&folder).into_iter().filter(|name| !before.contains(name)).collect();

    let attempt = runs.attempt(&mut random);
    let usable =
        !matches!(entries.iter().find(|(name, _)| name == "lock"), Some((_, Entry::Folder | Entry::Link(_))));
    let (before, uncounted) = (names(&folder), truth::uncounted(&folder));
    let expected = usable && truth::allows(runs, &folder, &alive, &attempt);
    let started = runs.start(&folder, &attempt);
    let outcome = started.as_ref().map(|_| ()).map_err(ToString::to_string);
    assert_eq!(outcome.is_ok(), expected, "{attempt:?}: {outcome:?}");
    let after = names(&folder);
    for lost in before.iter().filter(|name| !after.contains(name)) {
        let half_made = Path::new(lost).extension().is_some_and(|extension| extension == "half-made");
        assert!(half_made || uncounted.contains(lost), "{lost:?} was removed");
    }
    if let Ok(mut mechanism) = started
        && made::step(&mut mechanism)
    {
        drop(mechanism);
        let again = runs.start(&folder, &attempt);
        assert!(again.is_err() || matches!(attempt.begin, Begin::New(_)), "{attempt:?} was accepted twice");
    }
    [outcome.is_ok(), matches!(attempt.begin, Begin::New(_))]
}

#[test]
fn no_damaged_ledger_lets_noise_be_made_twice() {
    let runs = Runs::new();
    let (cases, mut counts, mut slowest) = (cases(2_000), [0; 2], Duration::ZERO);
    for case in cases.clone() {
        let ([accepted, new], time) = timed(case, LIMIT, || check(&runs, case));
        counts[0] += u64::from(accepted);
        counts[1] += u64::from(new);
        slowest = slowest.max(time);
    }
    let [accepted, new] = counts;
    println!(
        "{cases:?}: {accepted} accepted, {new} asked for a new incarnation; the slowest took {slowest:?}"
    );
}

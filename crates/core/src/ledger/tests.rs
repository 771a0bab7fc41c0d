//! Claims against a model of them, claim files against damage, and the cost of the ledger.

use super::file::{self, ClaimFile, Rows};
use super::*;
use std::collections::HashSet;
use std::time::Instant;

fn rows(incarnation: &str, segments: &[(u64, u64)]) -> Rows {
    let run = "c0ffee".repeat(10);
    Rows { run, incarnation: incarnation.into(), segments: segments.to_vec(), replica: false }
}

fn claim(place: &Place, rows: &Rows, step: u64, start: Start) -> Result<Option<Claim>> {
    place.claim(|| rows.clone(), step, start)
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .map(|entries| entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect())
        .unwrap_or_default();
    names.retain(|name| name != "lock");
    names
}

#[test]
fn overlaps_are_those_of_the_sets() {
    // Every pair of sets of up to two ranges below 6.
    let mut lists = vec![];
    for a in 0..6 {
        for b in a + 1..=6 {
            lists.push(vec![(a, b)]);
            for c in b..6 {
                lists.extend((c + 1..=6).map(|d| vec![(a, b), (c, d)]));
            }
        }
    }
    for one in &lists {
        for two in &lists {
            let set = |list: &[(u64, u64)]| list.iter().flat_map(|(a, b)| *a..*b).collect::<HashSet<_>>();
            let common = &set(one) & &set(two);
            let found = rows("first", one).overlap(&rows("first", two));
            assert_eq!(found.is_some(), !common.is_empty(), "{one:?} {two:?}");
            assert!(found.is_none_or(|range| range.clone().all(|coord| common.contains(&coord))));
            assert_eq!(rows("first", one).overlap(&rows("aa", two)), None);
        }
    }
}

#[test]
fn a_start_that_made_no_step_leaves_no_claim() {
    let folder = tempfile::tempdir().unwrap();
    let place = Place::folder(folder.path());
    let all = rows("first", &[(0, 10)]);
    let first = claim(&place, &all, 0, Start::First).unwrap().unwrap();
    assert_eq!(names(folder.path()).len(), 1);
    let error = claim(&place, &all, 0, Start::First).err().unwrap().to_string();
    assert!(error.contains("alive") && error.contains("coordinates 0 to 9"), "{error}");
    drop(first);
    assert_eq!(names(folder.path()), [""; 0]);
    // The next start removes the claim of a process that was killed before its first step.
    let killed = claim(&place, &all, 0, Start::First).unwrap().unwrap();
    let path = folder.path().join(&names(folder.path())[0]);
    let bytes = std::fs::read(&path).unwrap();
    drop(killed);
    std::fs::write(&path, bytes).unwrap();
    std::fs::write(path.with_extension(file::HALF_MADE), b"corr").unwrap();
    let second = claim(&place, &all, 0, Start::First).unwrap().unwrap();
    assert_eq!(names(folder.path()).len(), 1);
    second.advance(1);
    drop(second);
    assert_eq!(names(folder.path()).len(), 1);
}

#[test]
fn what_was_made_is_refused_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let place = Place::folder(folder.path());
    let all = rows("first", &[(0, 10)]);
    let made = claim(&place, &all, 0, Start::First).unwrap().unwrap();
    made.advance(7);
    drop(made);
    let refusal =
        |rows: &Rows, step, start| claim(&place, rows, step, start).err().map(|error| error.to_string());
    let error = refusal(&all, 0, Start::First).unwrap();
    for part in ["steps 0 to 6", "coordinates 0 to 9", "resume", "another run id", "another key"] {
        assert!(error.contains(part), "{error}");
    }
    let error = refusal(&rows("first", &[(2, 4), (9, 20)]), 6, Start::Exact).unwrap();
    assert!(error.contains("step 6 of coordinates 2 to 3") && error.contains("new incarnation"), "{error}");
    assert_eq!(refusal(&all, 7, Start::Exact), None);
    assert_eq!(refusal(&rows("first", &[(10, 20)]), 0, Start::First), None, "other coordinates");
    assert_eq!(refusal(&rows("aabb", &[(0, 10)]), 0, Start::Shared), None, "another incarnation");
    assert_eq!(refusal(&Rows { run: "d".repeat(64), ..all.clone() }, 0, Start::First), None, "another run");
    let shared = claim(&place, &rows("aabb", &[(0, 10)]), 7, Start::Shared).unwrap().unwrap();
    shared.advance(9);
    drop(shared);
    let error = refusal(&rows("aabb", &[(5, 6)]), 7, Start::Shared).unwrap();
    assert!(error.contains("steps 7 to 8") && error.contains("never used"), "{error}");
    assert_eq!(refusal(&all, 0, Start::Fresh), None, "a new incarnation is never refused");
}

#[test]
fn replicas_share_coordinates_if_all_of_them_say_so() {
    let folder = tempfile::tempdir().unwrap();
    let place = Place::folder(folder.path());
    let plain = rows("first", &[(0, 10)]);
    let replica = Rows { replica: true, ..plain.clone() };
    let one = claim(&place, &replica, 0, Start::First).unwrap().unwrap();
    let two = claim(&place, &replica, 0, Start::First).unwrap().unwrap();
    assert!(claim(&place, &plain, 0, Start::First).is_err(), "it does not say so");
    assert!(claim(&place, &Rows { segments: vec![(0, 9)], ..replica.clone() }, 0, Start::First).is_err());
    one.advance(1);
    let three = claim(&place, &replica, 0, Start::First).unwrap().unwrap();
    one.advance(2);
    assert!(claim(&place, &replica, 0, Start::First).is_err(), "the others are past its first step");
    drop((one, two, three));
    assert!(claim(&place, &replica, 0, Start::First).is_err(), "a dead replica made steps");
    assert!(claim(&place, &replica, 2, Start::Exact).is_ok());
}

#[test]
fn counts_know_damage() {
    for step in [0, 1, 2, 1 << 20, (1 << 40) - 1, 1 << 40] {
        let word = file::encode(step);
        assert_eq!(file::decode(word), Some(step));
        for bit in 0..64 {
            let damaged = file::decode(word ^ 1 << bit);
            assert_eq!(damaged, None, "{step} with bit {bit}");
        }
    }
    assert_eq!(file::decode(0), None, "a page that was never written");
    assert_eq!(file::decode(u64::MAX), None);
    assert!((0..100_000).all(|step| file::encode(step) < file::encode(step + 1)));
}

#[test]
fn damaged_files_are_refused_and_only_a_new_incarnation_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let place = Place::folder(folder.path());
    let all = rows("first", &[(0, 10), (12, 14)]);
    let made = claim(&place, &all, 0, Start::First).unwrap().unwrap();
    made.advance(3);
    drop(made);
    let path = folder.path().join(&names(folder.path())[0]);
    let whole = std::fs::read(&path).unwrap();
    let described = file::HEAD + 40 + serde_json::to_vec(&all).unwrap().len();
    let (original, _) = ClaimFile::open(&path).unwrap();
    assert_eq!((&original.rows, original.next_step()), (&all, 3));
    for len in [0, 16, 64, 72, 128, 136, 168, described - 1] {
        std::fs::write(&path, &whole[..len]).unwrap();
        let error = claim(&place, &all, 3, Start::Exact).err().unwrap().to_string();
        assert!(error.contains("damaged") && error.contains(".claim"), "{error}");
        assert!(claim(&place, &all, 3, Start::Fresh).is_ok());
    }
    for at in (0..16).chain(64..72).chain(128..described) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        assert!(ClaimFile::read(&mut bytes.as_slice()).is_err(), "byte {at}");
    }
    std::fs::write(&path, &whole).unwrap();
    let renamed = path.with_file_name(format!("{}other.claim", rows("aa", &[]).prefix()));
    std::fs::rename(&path, &renamed).unwrap();
    assert!(
        claim(&place, &rows("aa", &[(0, 1)]), 0, Start::Shared).is_err(),
        "another's claim under this name"
    );
}

/// Something that stands in a claim's place is never ignored, and never waited for.
#[cfg(target_os = "linux")]
#[test]
fn what_is_no_file_is_a_damaged_claim() {
    use std::os::unix::ffi::OsStrExt;
    let folder = tempfile::tempdir().unwrap();
    let place = Place::folder(folder.path());
    let all = rows("first", &[(0, 10)]);
    let name = |end: &[u8]| folder.path().join(OsStr::from_bytes(&[all.prefix().as_bytes(), end].concat()));
    let refused = |path: &Path| {
        let error = claim(&place, &all, 3, Start::Exact).err().expect("refused").to_string();
        assert!(error.contains("damaged") && error.contains(".claim"), "{error}");
        assert!(claim(&place, &all, 3, Start::Fresh).is_ok());
        std::fs::remove_file(path).unwrap();
    };
    let path = name(b"1.claim");
    std::os::unix::fs::symlink("missing", &path).unwrap();
    refused(&path);
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    refused(&path);
    let path = name(b"\xff.claim");
    std::fs::write(&path, b"not even text in its name").unwrap();
    refused(&path);
    assert!(claim(&place, &all, 3, Start::Exact).is_ok());
}

#[cfg(unix)]
#[test]
fn a_place_that_cannot_be_made_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, b"x").unwrap();
    let place = Place::folder(&file.join("ledger"));
    let error = claim(&place, &rows("first", &[(0, 1)]), 0, Start::First).err().unwrap().to_string();
    assert!(error.contains("ledger") && error.contains("file"), "{error}");
}

/// A second descriptor of an open file is what a forked child has of it, if nobody closed it there.
#[test]
fn a_lock_ends_with_its_owner_whoever_has_the_file_open() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lock");
    let lock = lock::lock_folder(folder.path()).unwrap();
    let of_a_child = lock.file().try_clone().unwrap();
    let again = || lock::OwnFile::open(&lock::open_options(), &path).unwrap().try_lock(&path).unwrap();
    assert!(!again());
    drop(lock);
    assert!(again());
    drop(of_a_child);
}

/// A step's call is a store: far below the 2 µs that a step may spend on it. The bound is loose, for machines that are shared.
#[test]
fn a_place_without_a_name_is_refused_and_nothing_is_made() {
    let place = Place::folder(Path::new(""));
    for start in [Start::First, Start::Exact, Start::Shared, Start::Fresh] {
        let refused = claim(&place, &rows("first", &[(0, 9)]), 3, start).err().unwrap().to_string();
        assert!(refused.contains("ledger is \"\": expected the path of a folder"), "{refused}");
    }
    assert!(!Path::new("lock").exists(), "in the folder that the program runs in");
}

#[test]
fn counting_a_step_takes_no_time() {
    let folder = tempfile::tempdir().unwrap();
    let place = Place::folder(folder.path());
    let claim = claim(&place, &rows("first", &[(0, 10)]), 0, Start::First).unwrap().unwrap();
    let begin = Instant::now();
    let steps = 1_000_000;
    (1..=steps).for_each(|step| claim.advance(step));
    let each = begin.elapsed().as_secs_f64() / steps as f64;
    assert_eq!(claim.next_step(), steps);
    println!("{:.1} ns per step", 1e9 * each);
    assert!(each < 2e-6, "{each} s");
}

//! Two processes with one key are killed at random moments, of starts, steps, saves and resumes: no row is made twice, and nothing is left
//! behind. `CORRNOISE_KILLS` says how often; CONTRIBUTING.md names the long run.
#![cfg(unix)]

use corrnoise::{CpuOptions, Error, Form, Key, Mechanism, Plan, Resume, Shard};
use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const FOLDER: &str = "CORRNOISE_KILLS_FOLDER";
const SEED: &str = "CORRNOISE_KILLS_SEED";
const DIM: u64 = 700;

/// Independent noise: what a step adds to zeros is one row, so equal bits are one row made twice.
fn plan() -> Plan {
    Plan::new(1000, Form::independent(), 1.0).unwrap()
}

/// The generator SplitMix64, for random decisions.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % bound
    }
}

/// Runs in a child only, until it is killed: starts or resumes, makes and records a few steps, saves some.
#[test]
fn worker() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let folder = Path::new(&folder);
    let mut dice = Dice(std::env::var(SEED).unwrap().parse().unwrap());
    let mut log = std::fs::OpenOptions::new().append(true).create(true).open(folder.join("log")).unwrap();
    // Each record is one write, so that lines of two processes do not mix.
    let mut record = |line: String| log.write_all(format!("{line}\n").as_bytes()).unwrap();
    loop {
        let run = std::fs::read_to_string(folder.join("run")).unwrap();
        let saved = folder.join(format!("saved-{run}-{}", dice.below(3)));
        let shard = match dice.below(3) {
            0 => Shard::whole(DIM).unwrap(),
            1 => Shard::whole(DIM).unwrap().within(0..350).unwrap(),
            _ => Shard::whole(DIM).unwrap().within(350..DIM).unwrap(),
        };
        let key = Key::from_file(folder.join("key"), run.as_str()).unwrap();
        let resume = |mode| {
            let files = [&saved];
            Mechanism::resume_cpu(
                &plan(),
                key.duplicate(),
                shard.clone(),
                &files,
                mode,
                CpuOptions::default(),
            )
        };
        let (what, made) = match dice.below(8) {
            0 | 1 => ("new", resume(Resume::NewIncarnation)),
            2..=5 => ("exact", resume(Resume::Exact)),
            _ => ("start", Mechanism::cpu(&plan(), key.duplicate(), shard.clone())),
        };
        let mut noise = match made {
            Ok(noise) => noise,
            Err(Error::Repeated(_)) if what != "new" => {
                record(format!("refused {what}"));
                continue;
            }
            // The checkpoint does not exist yet, or has other coordinates.
            Err(Error::Io { .. } | Error::Checkpoint { .. }) => continue,
            Err(other) => {
                record(format!("error {what}: {other}"));
                continue;
            }
        };
        record(format!("accepted {what}"));
        for _ in 0..dice.below(5) {
            let mut gradient = vec![0.0_f32; shard.num_coords() as usize];
            noise.add_to(&mut gradient).unwrap();
            let start = shard.segments()[0].start;
            // Both halves are recorded, so that a row of one range is recognised in a larger one.
            for (at, name) in [(0, "low"), (350, "high")].into_iter().filter(|(at, _)| *at >= start) {
                let Some(values) = gradient.get((at - start) as usize..).filter(|values| values.len() >= 4)
                else {
                    continue;
                };
                let bits: Vec<String> =
                    values[..4].iter().map(|value| format!("{:08x}", value.to_bits())).collect();
                record(format!("row {name} {}", bits.join("")));
            }
            if dice.below(3) == 0 {
                noise.save(&saved).unwrap();
            }
        }
    }
}

fn spawn(folder: &Path, seed: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "worker"])
        .env(FOLDER, folder)
        .env(SEED, seed.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// The files in a folder that should not stay there.
fn leftovers(folder: &Path) -> Vec<PathBuf> {
    let lasting = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        let extension = path.extension().is_some_and(|extension| extension == "claim");
        ["key", "key.ledger", "log", "run", "lock"].contains(&&*name)
            || name.starts_with("saved-")
            || extension
    };
    std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| !lasting(path))
        .collect()
}

#[test]
fn no_row_twice_and_nothing_left_behind() {
    let kills: u64 = std::env::var("CORRNOISE_KILLS").map_or(60, |count| count.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut dice = Dice(std::env::var("CORRNOISE_KILLS_FIRST").map_or(1, |seed| seed.parse().unwrap()));
    drop(Key::create_file(folder.join("key")).unwrap());
    std::fs::write(folder.join("run"), "0").unwrap();
    let mut workers = [1, 2].map(|seed| spawn(folder, seed));
    for kill in 0..kills {
        std::thread::sleep(Duration::from_micros(2000 + dice.below(40_000)));
        let victim = &mut workers[dice.below(2) as usize];
        assert_eq!(victim.try_wait().unwrap(), None, "a worker ended by itself");
        victim.kill().unwrap();
        victim.wait().unwrap();
        // Now and then a new run begins, which both processes compete for.
        if kill % 5 == 4 {
            let next = folder.join("next");
            std::fs::write(&next, (kill / 5 + 1).to_string()).unwrap();
            std::fs::rename(next, folder.join("run")).unwrap();
        }
        *victim = spawn(folder, dice.below(u64::MAX));
    }
    workers.iter_mut().for_each(|worker| {
        worker.kill().unwrap();
        worker.wait().unwrap();
    });
    let log = std::fs::read_to_string(folder.join("log")).unwrap();
    let mut counts: HashMap<&str, u64> = HashMap::new();
    let mut rows = HashSet::new();
    for line in log.lines() {
        assert!(!line.starts_with("error"), "{line}");
        match line.strip_prefix("row ") {
            Some(row) => assert!(rows.insert(row), "made twice: {row}"),
            None => *counts.entry(line).or_default() += 1,
        }
    }
    println!("{kills} kills, {} rows, {counts:?}", rows.len());
    // The test is void if one of these outcomes never occurred.
    for tried in ["accepted start", "accepted exact", "accepted new", "refused start", "refused exact"] {
        assert!(counts.get(tried).is_some_and(|count| *count > 0), "never {tried}: {counts:?}");
    }
    // The next start and the next save clear the files that kills left.
    let key = || Key::from_file(folder.join("key"), "last").unwrap();
    let mut noise = Mechanism::cpu(&plan(), key(), Shard::whole(DIM).unwrap()).unwrap();
    noise.add_to(&mut [0.0_f32; DIM as usize]).unwrap();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap().to_string_lossy().starts_with("saved-") {
            noise.save(&path).unwrap();
        }
    }
    assert_eq!(leftovers(folder), Vec::<PathBuf>::new());
    assert_eq!(leftovers(&folder.join("key.ledger")), Vec::<PathBuf>::new());
}

//! Real runs: their checkpoints, their ledgers, and attempts to start them.

use super::change::Entry;
use crate::Random;
use corrnoise_core::{
    Checkpoint, Cpu, CpuOptions, Form, Key, Layout, Mechanism, Plan, Result, Resume, Shard,
};
use std::ffi::OsString;
use std::ops::Range;
use std::path::Path;

const STEPS: u64 = 5;
const IDS: [&str; 2] = ["one", "two"];
/// Nonces that processes of a run share. The checkpoints know the first, ledgers the first two.
pub(super) const NONCES: [[u8; 16]; 3] = [[0x9a; 16], [0x37; 16], [0x51; 16]];

/// Two runs of one plan and one key.
pub(super) struct Runs {
    plan: Plan,
    whole: Shard,
    /// The checkpoints of each run, under the first incarnation and then under that of `NONCES[0]`.
    checkpoints: [Vec<Saved>; 2],
    /// Ledgers that these runs left.
    pub(super) ledgers: Vec<Vec<(OsString, Entry)>>,
}

/// A checkpoint of the whole space.
struct Saved {
    step: u64,
    incarnation: String,
    bytes: Vec<u8>,
}

/// The way in which an attempt begins; the number is that of a checkpoint.
#[derive(Clone, Copy, Debug)]
pub(super) enum Begin {
    First,
    Exact(usize),
    Shared(usize, [u8; 16]),
    New(usize),
}

/// An attempt to start or resume a run.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    run: usize,
    pub(super) shard: Shard,
    pub(super) begin: Begin,
}

fn key(run: usize) -> Key {
    Key::from_bytes(std::array::from_fn(|i| i as u8 * 5 + 3), IDS[run])
}

fn options() -> CpuOptions {
    CpuOptions { threads: 1, ..CpuOptions::default() }
}

/// Makes a step, unless all are made.
pub(super) fn step(noise: &mut Mechanism) -> bool {
    let lengths = noise.shard().segments().iter().map(|segment| (segment.end - segment.start) as usize);
    let mut gradients: Vec<Vec<f32>> = lengths.map(|len| vec![0.0; len]).collect();
    noise.next_step() < STEPS && {
        noise.add_to_all(&mut gradients.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>()).unwrap();
        true
    }
}

pub(super) fn hex(nonce: &[u8]) -> String {
    nonce.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Runs {
    pub(super) fn new() -> Runs {
        let plan = Plan::new(STEPS, Form::blt(&[0.3], &[0.5]).unwrap(), 0.5).unwrap();
        let whole = Layout::new([("w", 24), ("b", 5), ("v", 11)]).unwrap().whole();
        let mut runs = Runs { plan, whole, checkpoints: [vec![], vec![]], ledgers: vec![] };
        runs.checkpoints = [0, 1].map(|run| runs.save(run));
        runs.ledgers = (0..40).map(|seed| runs.ledger(&mut Random::new(seed))).collect();
        runs
    }

    fn save(&self, run: usize) -> Vec<Saved> {
        let mut saved = Vec::new();
        let mut keep = |noise: &mut Mechanism, incarnation: &str| loop {
            let (step_now, bytes) = (noise.next_step(), noise.state().unwrap());
            saved.push(Saved { step: step_now, incarnation: incarnation.into(), bytes });
            if !step(noise) {
                break;
            }
        };
        let mut noise = Mechanism::cpu_with(&self.plan, key(run), self.whole.clone(), options()).unwrap();
        step(&mut noise);
        let early = Checkpoint::from_bytes(noise.state().unwrap()).unwrap();
        keep(&mut noise, "first");
        let cpu = |keys: &[_], shard: &_| Cpu::new(&self.plan, keys, shard, options());
        let shared = Resume::SharedIncarnation(NONCES[0]);
        let mut noise =
            Mechanism::resume_from(&self.plan, key(run), self.whole.clone(), vec![early], shared, cpu)
                .unwrap();
        keep(&mut noise, &hex(&NONCES[0]));
        saved
    }

    /// The ledger that a few starts leave, with steps and without.
    fn ledger(&self, random: &mut Random) -> Vec<(OsString, Entry)> {
        let folder = tempfile::tempdir().unwrap();
        for _ in 0..1 + random.below(8) {
            let attempt = self.attempt(random);
            // A new incarnation draws its nonce from the system: a case that holds it could not be run again.
            if matches!(attempt.begin, Begin::New(_)) {
                continue;
            }
            if let Ok(mut mechanism) = self.start(folder.path(), &attempt) {
                (0..1 + random.below(3)).for_each(|_| _ = step(&mut mechanism));
            }
        }
        let read = |name: OsString| {
            let bytes = std::fs::read(folder.path().join(&name)).unwrap();
            (name, Entry::File(bytes))
        };
        let mut entries: Vec<_> = super::names(folder.path()).into_iter().map(read).collect();
        // Names are random and their order is the folder's; cases must be the same each time.
        entries.sort_by(|(_, a), (_, b)| a.cmp(b));
        entries.into_iter().enumerate().map(|(i, (name, entry))| (renumbered(name, i), entry)).collect()
    }

    /// An attempt on some coordinates of some run.
    pub(super) fn attempt(&self, random: &mut Random) -> Attempt {
        let run = random.below(2);
        let mut ends: Vec<u64> = (0..2 + 2 * random.below(2)).map(|_| random.word() % 1200).collect();
        ends.sort_unstable();
        let ranges: Vec<Range<u64>> = ends.chunks(2).map(|pair| pair[0]..pair[1]).collect();
        let part = self.whole.select(&ranges).unwrap_or_else(|_| self.whole.clone());
        let shard = if random.below(3) == 0 { self.whole.clone() } else { part };
        let shard = if random.below(3) == 0 { shard.replica() } else { shard };
        let saved = random.below(self.checkpoints[run].len());
        let first = random.below(STEPS as usize);
        let begin = match random.below(8) {
            0..2 => Begin::First,
            2..5 => Begin::Exact(saved),
            5..7 => Begin::Shared(first, *random.pick(&NONCES)),
            _ => Begin::New(saved),
        };
        Attempt { run, shard, begin }
    }

    pub(super) fn start(&self, folder: &Path, attempt: &Attempt) -> Result<Mechanism> {
        let (key, shard) = (key(attempt.run).with_ledger(folder), attempt.shard.clone());
        let (saved, resume) = match attempt.begin {
            Begin::First => return Mechanism::cpu_with(&self.plan, key, shard, options()),
            Begin::Exact(saved) => (saved, Resume::Exact),
            Begin::Shared(saved, nonce) => (saved, Resume::SharedIncarnation(nonce)),
            Begin::New(saved) => (saved, Resume::NewIncarnation),
        };
        let checkpoint = Checkpoint::from_bytes(self.checkpoints[attempt.run][saved].bytes.clone())?;
        let cpu = |keys: &[_], shard: &_| Cpu::new(&self.plan, keys, shard, options());
        Mechanism::resume_from(&self.plan, key, shard, vec![checkpoint], resume, cpu)
    }

    /// The first step of an attempt, and its incarnation as file names spell it; none for a new incarnation.
    pub(super) fn first(&self, attempt: &Attempt) -> Option<(u64, String)> {
        let saved = |i: usize| &self.checkpoints[attempt.run][i];
        match attempt.begin {
            Begin::First => Some((0, "first".into())),
            Begin::Exact(i) => Some((saved(i).step, saved(i).incarnation.clone())),
            Begin::Shared(i, nonce) => Some((saved(i).step, hex(&nonce))),
            Begin::New(_) => None,
        }
    }

    /// The public name of a run.
    pub(super) fn commitment(&self, run: usize) -> String {
        key(run).run_key(self.plan.fingerprint()).commitment().to_string()
    }

    pub(super) fn run_of(&self, attempt: &Attempt) -> String {
        self.commitment(attempt.run)
    }
}

/// A claim's name with a number in place of what was drawn.
fn renumbered(name: OsString, number: usize) -> OsString {
    let text = name.into_string().unwrap();
    match text.rsplit_once('-') {
        Some((prefix, _)) => format!("{prefix}-{number:016x}.claim").into(),
        None => text.into(),
    }
}

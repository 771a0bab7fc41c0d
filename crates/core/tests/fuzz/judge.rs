//! The rules by which a changed checkpoint may be accepted.
//!
//! - A file that was changed without the key is accepted by nobody: all of its bytes are authenticated.
//! - Resumed in part, a file may be changed where that part does not look; what is resumed is what the original gives.
//! - A file that the owner of the key sealed anew is accepted only if it belongs to the same plan, space and key, and then what
//!   is resumed is what the file says: its step, its incarnations, and its state to the bit.

use crate::edit::edit;
use crate::seal::{header, info, place, seal};
use crate::{Random, cases, named};
use corrnoise_core::{
    Checkpoint, Cpu, CpuOptions, Form, Key, Layout, Mechanism, Plan, Result, Resume, SaveOptions, Shard,
};
use std::time::{Duration, Instant};

/// A run whose checkpoint is tampered with.
struct Original {
    plan: Plan,
    shard: Shard,
    part: Shard,
    bytes: Vec<u8>,
    /// The state after resuming the part.
    part_state: Vec<u8>,
}

fn key() -> Key {
    Key::from_bytes(std::array::from_fn(|i| i as u8 * 7 + 1), "fuzz")
}

fn options() -> CpuOptions {
    CpuOptions { threads: 1, ..CpuOptions::default() }
}

fn resume(plan: &Plan, shard: &Shard, bytes: &[u8]) -> Result<Mechanism> {
    let checkpoints = vec![Checkpoint::from_bytes(bytes.to_vec())?];
    let cpu = |keys: &[_], shard: &_| Cpu::new(plan, keys, shard, options());
    Mechanism::resume_from(plan, key(), shard.clone(), checkpoints, Resume::Exact, cpu)
}

fn step(noise: &mut Mechanism) {
    let lengths = noise.shard().segments().iter().map(|segment| (segment.end - segment.start) as usize);
    let mut gradients: Vec<Vec<f32>> = lengths.map(|len| vec![0.0; len]).collect();
    noise.add_to_all(&mut gradients.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>()).unwrap();
}

fn original(form: Form, tensors: &[(&str, u64)], part: std::ops::Range<u64>, include_key: bool) -> Original {
    let plan = Plan::new(9, form, 0.5).unwrap();
    let shard = Layout::new(tensors.iter().copied()).unwrap().whole();
    let part = shard.within(part).unwrap();
    let mut noise = Mechanism::cpu_with(&plan, key(), shard.clone(), options()).unwrap();
    (0..3).for_each(|_| step(&mut noise));
    let checkpoints = vec![Checkpoint::from_bytes(noise.state().unwrap()).unwrap()];
    let cpu = |keys: &[_], shard: &_| Cpu::new(&plan, keys, shard, options());
    let second = Resume::SharedIncarnation([9; 16]);
    let mut noise = Mechanism::resume_from(&plan, key(), shard.clone(), checkpoints, second, cpu).unwrap();
    step(&mut noise);
    let folder = tempfile::tempdir().unwrap();
    noise.save_with(folder.path().join("file"), SaveOptions { include_key }).unwrap();
    let bytes = std::fs::read(folder.path().join("file")).unwrap();
    let part_state = resume(&plan, &part, &bytes).unwrap().state().unwrap();
    Original { plan, shard, part, bytes, part_state }
}

fn originals() -> Vec<Original> {
    let blt = || Form::blt(&[0.3, 0.1], &[0.5, 0.95]).unwrap();
    let ring = Form::banded_toeplitz(&[1.0, 0.5, 0.25]).unwrap();
    vec![
        original(blt(), &[("w", 40), ("b", 3), ("v", 17)], 30..1030, false),
        original(blt(), &[("w", 40), ("b", 3), ("v", 17)], 0..40, true),
        original(ring, &[("w", 25)], 3..9, false),
        original(Form::regenerate(&[1.0, -0.5]).unwrap(), &[("w", 9), ("b", 1)], 0..9, true),
        // Two sections, of which the part needs the second.
        original(blt(), &[("w", 65_600)], 65_550..65_590, false),
    ]
}

impl Original {
    /// Asserts that an accepted file gives what it should; returns whether it was accepted.
    fn judge(&self, bytes: &[u8], sealed: bool) -> bool {
        let (whole, part) = (resume(&self.plan, &self.shard, bytes), resume(&self.plan, &self.part, bytes));
        if !sealed {
            assert!(whole.is_err() || bytes == self.bytes, "a changed file was accepted");
            if let Ok(part) = &part {
                assert!(part.state().unwrap() == self.part_state, "a part was resumed with another meaning");
            }
            return part.is_ok();
        }
        if let Ok(mut noise) = whole {
            self.check_meaning(bytes, &noise);
            if noise.next_step() < self.plan.num_steps() {
                step(&mut noise);
            }
            return true;
        }
        false
    }

    /// Asserts that the resumed state is what the file says, read without the library, and that the file is one of this run.
    fn check_meaning(&self, bytes: &[u8], noise: &Mechanism) {
        let read = |bytes: &[u8]| info(&header(bytes).expect("a header").0).expect("what it says");
        let resumed = noise.state().unwrap();
        let (said, original, now) = (read(bytes), read(&self.bytes), read(&resumed));
        for field in ["version", "plan", "space", "key_commitment"] {
            assert_eq!(said[field], original[field], "{field} is another's");
        }
        assert_eq!(said["next_step"], now["next_step"]);
        assert_eq!(said["incarnations"], now["incarnations"]);
        let coords = |info: &serde_json::Value| {
            let segments = info["segments"].as_array().unwrap().clone();
            let ends =
                segments.iter().flat_map(|pair| [pair[0].as_u64().unwrap(), pair[1].as_u64().unwrap()]);
            ends.collect::<Vec<_>>()
        };
        assert!(coords(&said).is_sorted(), "{said}");
        // Where the file has other segments than the shard, its coordinates are numbered differently.
        if coords(&said) == coords(&now) {
            let state = |bytes: &[u8]| bytes[place(bytes, "state").unwrap()].to_vec();
            assert!(state(bytes) == state(&resumed), "another state than the file's");
        }
    }
}

#[test]
fn no_checkpoint_is_accepted_for_another() {
    let originals = originals();
    for original in &originals {
        let mut sealed = original.bytes.clone();
        seal(&mut sealed, &key().run_key(original.plan.fingerprint())).expect("it can be sealed");
        assert!(sealed == original.bytes, "the test seals as the library does");
        assert!(original.judge(&original.bytes, false) && original.judge(&original.bytes, true));
    }
    let (mut accepted, mut slowest) = ([0, 0], Duration::ZERO);
    let cases = cases(20_000);
    for case in cases.clone() {
        named(case, || {
            let mut random = Random::new(case);
            // The large one takes most of the time, and is a thirty-second of the cases.
            let which = if random.below(32) == 0 { 4 } else { random.below(4) };
            let original = &originals[which];
            let mut bytes = edit(&mut random, &original.bytes);
            let sealed = random.below(2) == 1;
            if sealed {
                let _ = seal(&mut bytes, &key().run_key(original.plan.fingerprint()));
            }
            let start = Instant::now();
            accepted[usize::from(sealed)] += u64::from(original.judge(&bytes, sealed));
            slowest = slowest.max(start.elapsed());
        });
    }
    println!("{cases:?}: accepted {accepted:?} (in part, sealed anew), the slowest took {slowest:?}");
    assert!(slowest < Duration::from_secs(20), "a case took {slowest:?}");
}

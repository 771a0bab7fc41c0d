//! Batches: compared with a second implementation written from `docs/noise-spec.md` on `rand_chacha`, their structure, and what
//! binds them to the noise. `sampler_statistics.rs` tests whether they are random.

use corrnoise::{Batch, Error, Family, Form, Key, Mechanism, Plan, Resume, Row, Sampler, Sampling, Shard};
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::collections::BTreeSet;
use std::ops::Range;

const STEPS: u64 = 23;

fn key() -> Key {
    Key::from_bytes(std::array::from_fn(|i| (i * 5 + 1) as u8), "run")
}

fn plan(sampling: Sampling) -> Plan {
    Plan::new(STEPS, Form::blt(&[0.3], &[0.9]).unwrap(), 0.5).unwrap().with_sampling(sampling).unwrap()
}

fn sampler(sampling: Sampling) -> Sampler {
    Sampler::new(&plan(sampling), &key()).unwrap()
}

fn poisson(dataset_size: u64, sampling_prob: f64) -> Sampling {
    Sampling::Poisson { dataset_size, sampling_prob }
}

fn block_poisson(dataset_size: u64, num_blocks: u64, sampling_prob: f64) -> Sampling {
    Sampling::BlockPoisson { dataset_size, num_blocks, sampling_prob }
}

fn cyclic(dataset_size: u64, num_batches: u64) -> Sampling {
    Sampling::Cyclic { dataset_size, num_batches }
}

fn bins(dataset_size: u64, num_bins: u64) -> Sampling {
    Sampling::BallsInBins { dataset_size, num_bins }
}

fn allocation(dataset_size: u64, num_bins: u64) -> Sampling {
    Sampling::RandomAllocation { dataset_size, num_bins }
}

fn spaced(dataset_size: u64, min_sep: u64, sampling_prob: f64) -> Sampling {
    Sampling::SpacedPoisson { dataset_size, min_sep, sampling_prob }
}

fn truncated(dataset_size: u64, num_blocks: u64, sampling_prob: f64, max_batch_size: u64) -> Sampling {
    Sampling::TruncatedPoisson { dataset_size, num_blocks, sampling_prob, max_batch_size }
}

fn every_kind() -> Vec<Sampling> {
    let mut kinds = vec![poisson(1, 0.5), poisson(64, 1.0 / 3.0), poisson(1000, 1e-2), poisson(200, 1.0)];
    kinds.extend([poisson(129, 1.0 - 2.0_f64.powi(-53)), poisson(5000, 1e-4), poisson(640, 0.5)]);
    kinds.extend([block_poisson(1000, 7, 0.3), block_poisson(1000, 1, 0.1), block_poisson(5, 5, 0.5)]);
    kinds.extend([cyclic(1000, 7), cyclic(9, 9), cyclic(50, 1), cyclic(100, 40)]);
    kinds.extend([bins(1000, 7), bins(9, 9), bins(50, 1), bins(100, 40)]);
    kinds.extend([allocation(1000, 7), allocation(9, 9), allocation(50, 1), allocation(100, 40)]);
    kinds.extend([spaced(1000, 5, 0.1), spaced(300, 1, 0.05), spaced(300, 40, 0.5), spaced(50, 3, 1.0)]);
    kinds.extend([spaced(200, 22, 1e-3), spaced(9, 1 << 40, 0.7)]);
    kinds.extend([truncated(1000, 1, 0.1, 100), truncated(1000, 7, 0.5, 70), truncated(90, 1, 1.0, 8)]);
    kinds
}

/// The specification's section "Sampler" in its slowest form: one 64-bit number per unit, a permutation as a list.
struct Reference {
    run_key: [u8; 32],
    sampling: Sampling,
}

impl Reference {
    fn rng(&self, purpose: u16, index: u64, block: u64) -> ChaCha12Rng {
        let mut rng = ChaCha12Rng::from_seed(self.run_key);
        rng.set_stream(Row::new(Family::Sampler, purpose, index).unwrap().stream());
        rng.set_word_pos(16 * u128::from(block));
        rng
    }

    fn joins(&self, step: u64, place: u64, prob: f64) -> bool {
        self.coin(0, step, place, prob)
    }

    fn coin(&self, purpose: u16, index: u64, place: u64, prob: f64) -> bool {
        let mut rng = self.rng(purpose, index, 8 * (place / 64));
        let number =
            (0..64).fold(0_u128, |number, _| number << 1 | u128::from(rng.next_u64() >> (place % 64) & 1));
        number < (prob * 2.0_f64.powi(64)) as u128
    }

    fn below(rng: &mut ChaCha12Rng, bound: u64) -> u64 {
        let bound = u128::from(bound);
        loop {
            let product = u128::from(rng.next_u64()) * bound;
            if product % (1 << 64) >= (1 << 64) % bound {
                return (product >> 64) as u64;
            }
        }
    }

    /// Part `part` of the shuffled dataset, ascending.
    fn part(&self, size: u64, parts: u64, part: u64) -> Vec<u64> {
        let mut units: Vec<u64> = (0..size).collect();
        let mut rng = self.rng(1, 0, 0);
        for place in (1..size).rev() {
            units.swap(place as usize, Self::below(&mut rng, place + 1) as usize);
        }
        let mut chosen = units[(part * size / parts) as usize..((part + 1) * size / parts) as usize].to_vec();
        chosen.sort();
        chosen
    }

    /// The units in a bin of an epoch.
    fn bin(&self, size: u64, bins: u64, epoch: u64, bin: u64) -> Vec<u64> {
        let mut rng = self.rng(2, epoch, 0);
        (0..size).filter(|_| Self::below(&mut rng, bins) == bin).collect()
    }

    /// A unit's steps until one of them, walked through from the beginning.
    fn spaced(&self, unit: u64, last: u64, min_sep: u64, prob: f64) -> Vec<u64> {
        let threshold = (prob * 2.0_f64.powi(64)) as u128;
        let total = (1 << 64) + u128::from(min_sep - 1) * threshold;
        let mask = total.next_power_of_two() - 1;
        let mut rng = self.rng(4, unit, 0);
        let number = loop {
            let low = u128::from(rng.next_u64());
            let number = (u128::from(rng.next_u64()) << 64 | low) & mask;
            if number < total {
                break number;
            }
        };
        let mut free = if number >> 64 == 0 { 0 } else { 1 + ((number - (1 << 64)) / threshold) as u64 };
        let mut steps = Vec::new();
        for step in 0..=last {
            if step >= free && self.coin(3, unit, step, prob) {
                steps.push(step);
                free = step + min_sep;
            }
        }
        steps
    }

    fn batch(&self, step: u64) -> Vec<u64> {
        match self.sampling {
            Sampling::Poisson { dataset_size, sampling_prob } => {
                (0..dataset_size).filter(|unit| self.joins(step, *unit, sampling_prob)).collect()
            }
            Sampling::BlockPoisson { dataset_size, num_blocks, sampling_prob } => {
                let block = self.part(dataset_size, num_blocks, step % num_blocks);
                let places = (0..block.len()).filter(|place| self.joins(step, *place as u64, sampling_prob));
                places.map(|place| block[place]).collect()
            }
            Sampling::Cyclic { dataset_size, num_batches } => {
                self.part(dataset_size, num_batches, step % num_batches)
            }
            Sampling::BallsInBins { dataset_size, num_bins } => {
                self.bin(dataset_size, num_bins, 0, step % num_bins)
            }
            Sampling::RandomAllocation { dataset_size, num_bins } => {
                self.bin(dataset_size, num_bins, step / num_bins, step % num_bins)
            }
            Sampling::SpacedPoisson { dataset_size, min_sep, sampling_prob } => {
                let comes =
                    |unit: &u64| self.spaced(*unit, step, min_sep, sampling_prob).last() == Some(&step);
                (0..dataset_size).filter(comes).collect()
            }
            Sampling::TruncatedPoisson { dataset_size, num_blocks, sampling_prob, max_batch_size } => {
                let whole = match num_blocks {
                    1 => poisson(dataset_size, sampling_prob),
                    _ => block_poisson(dataset_size, num_blocks, sampling_prob),
                };
                let mut units = Reference { sampling: whole, ..*self }.batch(step);
                if units.len() as u64 > max_batch_size {
                    let (mut rng, mut kept) = (self.rng(5, step, 0), Vec::new());
                    // The places that are still free stay in the order that swapping leaves them in.
                    while (kept.len() as u64) < max_batch_size {
                        let chosen = Self::below(&mut rng, units.len() as u64) as usize;
                        kept.push(units[chosen]);
                        units[chosen] = units[0];
                        units.remove(0);
                    }
                    kept.sort();
                    units = kept;
                }
                units
            }
            Sampling::MinSep { .. } => panic!("no batches are drawn"),
        }
    }
}

#[test]
fn batches_are_those_of_the_specification() {
    let mut units = 0;
    for sampling in every_kind() {
        let sampler = sampler(sampling);
        let run_key = *key().run_key(plan(sampling).fingerprint()).bytes();
        let reference = Reference { run_key, sampling };
        for step in 0..STEPS {
            let batch = sampler.batch(step).unwrap();
            assert_eq!(batch.indices(), reference.batch(step), "{sampling:?}, step {step}");
            units += batch.len();
        }
    }
    assert!(units > 10_000);
}

/// A change of the mapping would move every run's batches: it must be noticed, even if made in both implementations.
#[test]
fn known_batches() {
    let batch = |sampling, step| sampler(sampling).batch(step).unwrap().indices().to_vec();
    let known = [
        batch(poisson(100, 0.1), 3),
        batch(block_poisson(100, 4, 0.3), 6),
        batch(cyclic(50, 6), 8),
        batch(bins(50, 6), 8),
        batch(allocation(50, 6), 8),
        batch(spaced(50, 4, 0.5), 8),
        batch(truncated(100, 2, 0.5, 9), 8),
    ];
    assert_eq!(known, KNOWN);
}

const KNOWN: [&[u64]; 7] = [
    &[25, 26, 54, 67, 73, 84, 86, 88, 91],
    &[6, 9, 10, 15, 27, 57, 70, 74, 77, 89],
    &[12, 15, 16, 23, 31, 33, 40, 45, 47],
    &[0, 1, 3, 10, 17, 21, 34, 38, 39, 47],
    &[4, 5, 13, 16, 26, 27, 49],
    &[1, 4, 8, 16, 18, 20, 24, 26, 32, 33, 34, 40, 42, 44, 46],
    &[28, 30, 38, 45, 49, 50, 53, 74, 86],
];

#[test]
fn order_of_calls_objects_and_memory_do_not_matter() {
    for sampling in every_kind() {
        let one = sampler(sampling);
        let in_order: Vec<Batch> = (0..STEPS).map(|step| one.batch(step).unwrap()).collect();
        let mut reused = one.batch(STEPS - 1).unwrap();
        for step in (0..STEPS).rev() {
            one.fill(step, &mut reused).unwrap();
            assert_eq!(reused, in_order[step as usize]);
            assert_eq!(sampler(sampling).batch(step).unwrap(), reused, "as after a resume at step {step}");
            assert_eq!((reused.step(), reused.is_empty()), (step, reused.indices().is_empty()));
        }
        let (offsets, indices) = one.export(2..STEPS).unwrap();
        assert_eq!(offsets.len() as u64, STEPS - 1);
        for (pair, batch) in offsets.windows(2).zip(&in_order[2..]) {
            assert_eq!(&indices[pair[0] as usize..pair[1] as usize], batch.indices());
        }
    }
}

/// Threads that ask one sampler for steps in different orders get the batches of one that goes in order.
#[test]
fn threads_may_share_a_sampler() {
    for sampling in [allocation(200, 6), spaced(200, 4, 0.2)] {
        let (shared, own) = (sampler(sampling), sampler(sampling));
        let expected: Vec<Batch> = (0..STEPS).map(|step| own.batch(step).unwrap()).collect();
        std::thread::scope(|scope| {
            for stride in [1, 5, 9, 22] {
                let (shared, expected) = (&shared, &expected);
                scope.spawn(move || {
                    for i in 0..2 * STEPS {
                        let step = (i + 1) * stride % STEPS;
                        assert_eq!(shared.batch(step).unwrap(), expected[step as usize]);
                    }
                });
            }
        });
    }
}

#[test]
fn keys_runs_and_plans_do_not_share_batches() {
    for sampling in [
        poisson(300, 0.5),
        block_poisson(300, 3, 0.5),
        cyclic(300, 3),
        bins(300, 3),
        allocation(300, 3),
        spaced(300, 3, 0.5),
    ] {
        let first =
            |plan: &Plan, key: Key| Sampler::new(plan, &key).unwrap().batch(0).unwrap().indices().to_vec();
        let base = first(&plan(sampling), key());
        assert_eq!(base, first(&plan(sampling), key()));
        let other_plan = Plan::new(STEPS, Form::independent(), 0.5).unwrap().with_sampling(sampling).unwrap();
        assert_ne!(base, first(&other_plan, key()));
        assert_ne!(base, first(&plan(sampling), Key::from_bytes([6; 32], "run")));
        let second_run = Key::from_bytes(std::array::from_fn(|i| (i * 5 + 1) as u8), "second");
        assert_ne!(base, first(&plan(sampling), second_run));
    }
}

#[test]
fn parts_take_turns_and_cover_everyone_once() {
    for (sampling, parts) in [
        (block_poisson(1000, 7, 1.0), 7),
        (block_poisson(1000, 7, 0.4), 7),
        (cyclic(1000, 7), 7),
        (cyclic(5, 5), 5),
        (bins(1000, 7), 7),
    ] {
        let (sampler, whole) =
            (sampler(sampling), !matches!(sampling, Sampling::BlockPoisson { sampling_prob: 0.4, .. }));
        let batches: Vec<Batch> = (0..STEPS).map(|step| sampler.batch(step).unwrap()).collect();
        let mut last = vec![None; 1000];
        for batch in &batches {
            assert!(batch.indices().is_sorted_by(|a, b| a < b), "ascending, each once");
            for &unit in batch.indices() {
                let place = batch.step() % parts;
                assert!(
                    last[unit as usize]
                        .is_none_or(|earlier| earlier % parts == place && earlier < batch.step())
                );
                last[unit as usize] = Some(batch.step());
            }
        }
        if whole {
            let epoch: BTreeSet<u64> =
                batches[..parts as usize].iter().flat_map(|b| b.indices().to_vec()).collect();
            let size = batches[..parts as usize].iter().map(Batch::len).sum::<usize>();
            assert_eq!((epoch.len(), size), (size, if parts == 5 { 5 } else { 1000 }), "a partition");
            assert_eq!(batches[0].indices(), batches[parts as usize].indices());
        }
        let lengths = batches.iter().map(Batch::len);
        let spread = lengths.clone().max().unwrap() - lengths.min().unwrap();
        assert!(!whole || spread <= 1 || matches!(sampling, Sampling::BallsInBins { .. }), "even parts");
    }
}

/// Every unit has one step in each epoch; where it lies in one epoch does not tell where it lies in the next.
#[test]
fn an_allocation_is_a_partition_of_every_epoch() {
    let sampler = sampler(allocation(1000, 7));
    let epochs: Vec<Vec<u64>> = (0..STEPS / 7)
        .map(|epoch| {
            let mut bin = vec![u64::MAX; 1000];
            for step in 7 * epoch..7 * (epoch + 1) {
                for &unit in sampler.batch(step).unwrap().indices() {
                    assert_eq!(std::mem::replace(&mut bin[unit as usize], step % 7), u64::MAX, "once");
                }
            }
            assert!(!bin.contains(&u64::MAX));
            bin
        })
        .collect();
    let same = epochs[0].iter().zip(&epochs[1]).filter(|(a, b)| a == b).count();
    assert!((90..200).contains(&same), "{same} of 1000 in the same bin, a seventh is expected");
}

#[test]
fn a_unit_sits_out_and_comes_again() {
    for (min_sep, prob) in [(5, 0.5), (4, 1.0), (1, 0.3)] {
        let sampler = sampler(spaced(1000, min_sep, prob));
        let (mut last, mut shortest) = (vec![None; 1000], u64::MAX);
        for step in 0..STEPS {
            for &unit in sampler.batch(step).unwrap().indices() {
                if let Some(earlier) = last[unit as usize].replace(step) {
                    shortest = shortest.min(step - earlier);
                }
            }
        }
        assert_eq!(shortest, min_sep);
    }
}

#[test]
fn a_truncated_batch_is_a_part_of_the_whole_one() {
    // Both draw under one key and plan only here, by the reference: a plan has one scheme.
    let run_key = *key().run_key(plan(poisson(400, 0.3)).fingerprint()).bytes();
    let whole = Reference { run_key, sampling: poisson(400, 0.3) };
    let part = Reference { run_key, sampling: truncated(400, 1, 0.3, 115) };
    let mut sizes = BTreeSet::new();
    for step in 0..STEPS {
        let (whole, part) = (whole.batch(step), part.batch(step));
        assert!(part.len() == whole.len().min(115) && part.iter().all(|unit| whole.contains(unit)));
        sizes.insert(part.len());
    }
    assert!(sizes.len() > 3 && sizes.last() == Some(&115));
    let sampler = sampler(truncated(400, 3, 1.0, 50));
    assert!((0..STEPS).all(|step| sampler.batch(step).unwrap().len() == 50));
}

#[test]
fn padded_batches_have_one_shape() {
    for sampling in every_kind() {
        let sampler = sampler(sampling);
        let len = sampler.max_batch_size() as usize;
        let mut longest = 0;
        for step in 0..STEPS {
            let batch = sampler.batch(step).unwrap();
            let (indices, mask) = batch.padded(len, 77_777).unwrap();
            let (units, padding) = indices.split_at(batch.len());
            assert!(indices.len() == len && units == batch.indices(), "{sampling:?}");
            assert!(padding.iter().all(|unit| *unit == 77_777));
            assert!(mask.len() == len && mask.iter().take_while(|there| **there).count() == units.len());
            assert_eq!(mask.iter().filter(|there| **there).count(), units.len());
            longest = longest.max(units.len());
            if units.len() > 1 {
                let error = batch.padded(units.len() - 1, 0).unwrap_err().to_string();
                let expected =
                    format!("step {step} is {}: expected at most {}", units.len(), units.len() - 1);
                assert!(error.contains(&expected), "{error}");
            }
            assert!(batch.padded(0, 0).unwrap_err().to_string().contains("length 0: expected at least 1"));
        }
        if matches!(sampling, Sampling::Cyclic { .. } | Sampling::TruncatedPoisson { .. }) {
            assert_eq!(longest, len, "no place more than is needed: {sampling:?}");
        }
    }
}

#[test]
fn what_cannot_be_drawn_is_refused() {
    let bare = Plan::new(5, Form::independent(), 1.0).unwrap();
    let message = |plan: &Plan| Sampler::new(plan, &key()).unwrap_err().to_string();
    assert!(message(&bare).contains("how batches are chosen"), "{}", message(&bare));
    let min_sep = bare.with_sampling(Sampling::MinSep { min_sep: 2, max_participations: 1 }).unwrap();
    assert!(message(&min_sep).contains("use Guard"), "{}", message(&min_sep));
    let sampler = sampler(poisson(100, 0.5));
    let mut batch = sampler.batch(1).unwrap();
    let before = batch.clone();
    assert!(matches!(sampler.fill(STEPS, &mut batch), Err(Error::PastEnd { step: STEPS, num_steps: STEPS })));
    assert_eq!(batch, before);
    assert!(matches!(sampler.batch(u64::MAX), Err(Error::PastEnd { .. })));
    assert!(matches!(sampler.export(0..STEPS + 1), Err(Error::PastEnd { .. })));
    assert!(sampler.export(Range { start: 3, end: 2 }).unwrap_err().to_string().contains("first step is 3"));
    assert_eq!(sampler.export(4..4).unwrap(), (vec![0], vec![]));
}

#[test]
fn sizes_are_expected_and_nothing_prints_a_key() {
    let size = |sampling| sampler(sampling).expected_batch_size();
    assert_eq!(size(poisson(1000, 0.25)), 250.0);
    assert_eq!(size(block_poisson(1000, 8, 0.5)), 62.5);
    assert_eq!((size(cyclic(1000, 8)), size(bins(1000, 16))), (125.0, 62.5));
    assert_eq!((size(spaced(1000, 6, 0.2)), size(spaced(1000, 4, 1.0))), (100.0, 250.0));
    assert_eq!(size(spaced(1000, 1, 0.25)), 250.0);
    assert_eq!(size(truncated(1000, 4, 0.5, 200)), 125.0);
    let shown = format!("{:?}", sampler(poisson(1000, 0.25)));
    assert!(shown.contains("0.25") && !shown.contains("cipher") && !shown.contains("key"), "{shown}");
}

#[test]
fn a_batch_of_another_step_plan_or_run_is_refused() {
    let plan = plan(poisson(100, 0.5));
    let make = || Mechanism::cpu(&plan, key(), Shard::whole(500).unwrap()).unwrap();
    let (mut noise, mut untouched) = (make(), make());
    let sampler = Sampler::new(&plan, &key()).unwrap();
    let mut gradients = [vec![0.0_f32; 500], vec![0.0_f32; 500]];
    for step in 0..3 {
        for wrong in [step + 1, STEPS - 1].into_iter().chain(step.checked_sub(1)) {
            let error = noise.for_batch(&sampler.batch(wrong).unwrap()).err().unwrap();
            assert!(
                matches!(error, Error::BatchStep { batch, next_step } if (batch, next_step) == (wrong, step))
            );
            let named = error.to_string();
            assert!(
                named.contains(&format!("step {wrong}")) && named.contains(&format!("step is {step}")),
                "{named}"
            );
        }
        let other_plan = self::plan(poisson(100, 0.25));
        let foreign = Sampler::new(&other_plan, &key()).unwrap().batch(step).unwrap();
        let error = noise.for_batch(&foreign).err().unwrap().to_string();
        assert!(error.contains(&plan.fingerprint().to_string()), "{error}");
        let other_run = Key::from_bytes([9; 32], "run");
        let foreign = Sampler::new(&plan, &other_run).unwrap().batch(step).unwrap();
        assert!(noise.for_batch(&foreign).err().unwrap().to_string().contains("another key"));
        assert_eq!(noise.next_step(), step);
        noise.for_batch(&sampler.batch(step).unwrap()).unwrap().add_to(&mut gradients[0]).unwrap();
        untouched.unchecked_batch().unwrap().add_to(&mut gradients[1]).unwrap();
        assert_eq!(gradients[0], gradients[1], "a refusal changes nothing");
    }
}

#[test]
fn a_resumed_run_takes_the_same_batches() {
    let folder = tempfile::tempdir().unwrap();
    let (plan, path) = (plan(block_poisson(100, 3, 0.5)), folder.path().join("noise"));
    let shard = || Shard::whole(10).unwrap();
    let mut noise = Mechanism::cpu(&plan, key(), shard()).unwrap();
    let sampler = Sampler::new(&plan, &key()).unwrap();
    noise.for_batch(&sampler.batch(0).unwrap()).unwrap().add_to(&mut [0.0_f32; 10]).unwrap();
    noise.save(&path).unwrap();
    for resume in [Resume::NewIncarnation, Resume::Exact] {
        let mut again =
            Mechanism::resume_cpu(&plan, key(), shard(), &[&path], resume, Default::default()).unwrap();
        assert!(again.for_batch(&sampler.batch(0).unwrap()).is_err());
        again.for_batch(&sampler.batch(1).unwrap()).unwrap().add_to(&mut [0.0_f32; 10]).unwrap();
    }
}

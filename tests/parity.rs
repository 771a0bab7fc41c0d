//! The same bits everywhere: scalar and SIMD, any number of threads, any split into shards, stopped and resumed at any step.
//!
//! Plans are on the finest grid: on the one that plans have by themselves, a difference in the last bit of the noise would show far less often.

use corrnoise::{CpuOptions, Element, Form, Isa, Key, Layout, Mechanism, Plan, Resume, Rounds, Shard};
use corrnoise_testkit::cases::{every_form, square_root_coefs};
use corrnoise_testkit::gradients::{assert_same, gradient};
use half::{bf16, f16};

const SIZES: [u64; 6] = [1, 3, 511, 512, 513, 1_000_007];

fn key() -> Key {
    Key::from_bytes(std::array::from_fn(|i| (i * 29 + 3) as u8), "parity")
}

fn options(isa: Isa, threads: usize) -> CpuOptions {
    CpuOptions { threads, isa, ..CpuOptions::default() }
}

/// Runs all steps on one gradient that accumulates: every step's noise is in the result.
fn run<E: Element>(plan: &Plan, shard: Shard, options: CpuOptions) -> Vec<E> {
    let mut out = gradient(shard.num_coords(), E::from_f32);
    let mut mechanism = Mechanism::cpu_with(plan, key(), shard, options).unwrap();
    for _ in 0..plan.num_steps() {
        mechanism.add_to(&mut out).unwrap();
    }
    out
}

fn scalar_equals_simd<E: Element>(type_name: &str) {
    let steps = 4;
    for (name, form) in every_form(steps) {
        let plan = Plan::new(steps, form, 0.75).unwrap().with_finest_grid().unwrap();
        for size in SIZES {
            let shard = Shard::whole(size).unwrap();
            let scalar = run::<E>(&plan, shard.clone(), options(Isa::Scalar, 2));
            for threads in [1, 2, 3] {
                let simd = run::<E>(&plan, shard.clone(), options(Isa::Auto, threads));
                assert_same(
                    &scalar,
                    &simd,
                    &format!("{type_name}, {name}, {size} coordinates, {threads} threads"),
                );
            }
        }
    }
}

#[test]
fn scalar_equals_simd_f32() {
    scalar_equals_simd::<f32>("f32");
}

#[test]
fn scalar_equals_simd_bf16() {
    scalar_equals_simd::<bf16>("bf16");
}

#[test]
fn scalar_equals_simd_f16() {
    scalar_equals_simd::<f16>("f16");
}

/// Compares 4·10⁷ values for each number of rounds, 1.2·10⁸ in all; about 900 of their radius words are extended.
#[test]
fn scalar_equals_simd_on_a_hundred_million_values() {
    let steps = 40;
    for rounds in [Rounds::R8, Rounds::R12, Rounds::R20] {
        let plan = Plan::new(steps, Form::independent(), 1.0)
            .unwrap()
            .with_finest_grid()
            .unwrap()
            .with_rounds(rounds)
            .unwrap();
        let size = 1_000_007;
        let make =
            |isa| Mechanism::cpu_with(&plan, key(), Shard::whole(size).unwrap(), options(isa, 2)).unwrap();
        let (mut scalar, mut simd) = (make(Isa::Scalar), make(Isa::Auto));
        for step in 0..steps {
            let (mut left, mut right) = (vec![0.0_f32; size as usize], vec![0.0_f32; size as usize]);
            scalar.add_to(&mut left).unwrap();
            simd.add_to(&mut right).unwrap();
            assert_same(&left, &right, &format!("{rounds:?}, step {step}"));
        }
    }
}

#[test]
fn any_split_gives_the_same_bits() {
    let steps = 4;
    for (name, form) in every_form(steps) {
        let plan = Plan::new(steps, form, 0.75).unwrap().with_finest_grid().unwrap();
        for size in [3, 513, 30_011] {
            let space = Shard::whole(size).unwrap();
            let whole = run::<f32>(&plan, space.clone(), options(Isa::Auto, 2));
            let start = gradient(size, |x| x);
            for cuts in [vec![1], vec![512 % size.max(2), size - 1], vec![100, 129, 8_191, 8_192, 20_001]] {
                let mut bounds: Vec<u64> = cuts.into_iter().filter(|cut| *cut > 0 && *cut < size).collect();
                bounds.sort();
                bounds.dedup();
                bounds.insert(0, 0);
                bounds.push(size);
                for pair in bounds.windows(2) {
                    let shard = space.within(pair[0]..pair[1]).unwrap();
                    let mut part = start[pair[0] as usize..pair[1] as usize].to_vec();
                    let mut mechanism =
                        Mechanism::cpu_with(&plan, key(), shard, options(Isa::Auto, 2)).unwrap();
                    for _ in 0..steps {
                        mechanism.add_to(&mut part).unwrap();
                    }
                    let expected = &whole[pair[0] as usize..pair[1] as usize];
                    assert_same(expected, &part, &format!("{name}, {pair:?} of {size}"));
                }
            }
        }
    }
}

#[test]
fn several_tensors_are_one_coordinate_space() {
    let layout = Layout::new([("w", 1000), ("b", 10), ("v", 8_705), ("u", 1)]).unwrap();
    for (name, form) in every_form(4) {
        let plan = Plan::new(4, form, 0.75).unwrap().with_finest_grid().unwrap();
        let flat = {
            let mut out = vec![0.0_f32; layout.dim() as usize];
            let shard = Shard::whole(layout.dim()).unwrap();
            let mut mechanism = Mechanism::cpu(&plan, key(), shard).unwrap();
            (0..4).for_each(|_| mechanism.add_to(&mut out).unwrap());
            out
        };
        let mut tensors: Vec<Vec<f32>> =
            layout.tensors().iter().map(|t| vec![0.0; (t.coords.end - t.coords.start) as usize]).collect();
        let mut mechanism = Mechanism::cpu(&plan, key(), layout.whole()).unwrap();
        for _ in 0..4 {
            let mut slices: Vec<&mut [f32]> = tensors.iter_mut().map(Vec::as_mut_slice).collect();
            mechanism.add_to_all(&mut slices).unwrap();
        }
        for (tensor, values) in layout.tensors().iter().zip(&tensors) {
            let expected = &flat[tensor.coords.start as usize..tensor.coords.end as usize];
            assert_same(expected, values, &format!("{name}, tensor {}", tensor.name));
        }
    }
}

#[test]
fn resuming_at_any_step_under_any_split_gives_the_same_bits() {
    let (steps, size) = (6, 70_001);
    let folder = tempfile::tempdir().unwrap();
    let space = Shard::whole(size).unwrap();
    for (name, form) in every_form(steps) {
        let plan = Plan::new(steps, form, 0.75).unwrap().with_finest_grid().unwrap();
        let whole = run::<f32>(&plan, space.clone(), options(Isa::Auto, 2));
        for stop in 0..=steps {
            // The run is saved by two processes and resumed by three with other boundaries, one of them without SIMD.
            let mut out = gradient(size, |x| x);
            let files: Vec<_> = [(0, 33_333), (33_333, size)]
                .iter()
                .map(|&(start, end)| {
                    let shard = space.within(start..end).unwrap();
                    let mut mechanism = Mechanism::cpu(&plan, key(), shard).unwrap();
                    for _ in 0..stop {
                        mechanism.add_to(&mut out[start as usize..end as usize]).unwrap();
                    }
                    let file = folder.path().join(format!("{start}.safetensors"));
                    mechanism.save(&file).unwrap();
                    file
                })
                .collect();
            for (start, end, isa) in
                [(0, 513, Isa::Scalar), (513, 65_535, Isa::Auto), (65_535, size, Isa::Auto)]
            {
                let shard = space.within(start..end).unwrap();
                let resumed =
                    Mechanism::resume_cpu(&plan, key(), shard, &files, Resume::Exact, options(isa, 1));
                let mut mechanism = resumed.unwrap();
                assert_eq!(mechanism.next_step(), stop);
                for _ in stop..steps {
                    mechanism.add_to(&mut out[start as usize..end as usize]).unwrap();
                }
            }
            assert_same(&whole, &out, &format!("{name}, stopped before step {stop}"));
        }
    }
}

/// Shards that own a piece of every tensor, saved by two processes and resumed by one, and the reverse.
#[test]
fn resuming_several_tensors_under_another_split_gives_the_same_bits() {
    let layout = Layout::new([("w", 70_001), ("b", 10), ("v", 8_705), ("u", 1), ("t", 200)]).unwrap();
    let space = layout.whole();
    let halves = [
        space
            .select(&[0..40_000, layout.tensors()[2].coords.start..layout.tensors()[2].coords.start + 4_000])
            .unwrap(),
        space
            .select(&[
                40_000..70_001,
                70_001..layout.tensors()[2].coords.start,
                layout.tensors()[2].coords.start + 4_000..layout.dim(),
            ])
            .unwrap(),
    ];
    assert_eq!(halves[0].num_coords() + halves[1].num_coords(), space.num_coords());
    let folder = tempfile::tempdir().unwrap();
    let (steps, stop) = (6, 4);
    /// The sum of `count` rows of every segment.
    fn advance(mechanism: &mut Mechanism, count: u64) -> Vec<(u64, Vec<f32>)> {
        let segments = mechanism.shard().segments().to_vec();
        let mut rows: Vec<Vec<f32>> =
            segments.iter().map(|s| vec![0.0; (s.end - s.start) as usize]).collect();
        for _ in 0..count {
            let mut slices: Vec<&mut [f32]> = rows.iter_mut().map(Vec::as_mut_slice).collect();
            mechanism.add_to_all(&mut slices).unwrap();
        }
        segments.iter().map(|s| s.start).zip(rows).collect()
    }
    /// The segments as one vector over the whole space.
    fn spread(dim: u64, parts: Vec<(u64, Vec<f32>)>) -> Vec<f32> {
        let mut out = vec![0.0; dim as usize];
        for (start, values) in parts {
            out[start as usize..start as usize + values.len()].copy_from_slice(&values);
        }
        out
    }
    for (name, form) in every_form(steps) {
        let plan = Plan::new(steps, form, 0.75).unwrap().with_finest_grid().unwrap();
        let make = |shard: &Shard| Mechanism::cpu(&plan, key(), shard.clone()).unwrap();
        let resume = |shard: &Shard, files: &[std::path::PathBuf]| {
            Mechanism::resume_cpu(&plan, key(), shard.clone(), files, Resume::Exact, CpuOptions::default())
                .unwrap()
        };
        let file = |name: &str| folder.path().join(name);
        let mut whole = make(&space);
        advance(&mut whole, stop);
        whole.save(file("whole")).unwrap();
        let expected = spread(layout.dim(), advance(&mut whole, steps - stop));
        for (i, half) in halves.iter().enumerate() {
            let mut part = make(half);
            advance(&mut part, stop);
            part.save(file(&i.to_string())).unwrap();
        }
        let mut joined = resume(&space, &[file("1"), file("0")]);
        let got = spread(layout.dim(), advance(&mut joined, steps - stop));
        assert_same(&expected, &got, &format!("{name}, two files into one"));
        let parts = halves
            .iter()
            .flat_map(|half| advance(&mut resume(half, &[file("whole")]), steps - stop))
            .collect();
        assert_same(&expected, &spread(layout.dim(), parts), &format!("{name}, one file into two"));
    }
}

/// The comparisons above need a vector path: this test says so loudly where there is none.
#[test]
fn the_vector_path_is_the_one_that_runs() {
    let plan = Plan::new(1, Form::independent(), 1.0).unwrap();
    let auto = Mechanism::cpu(&plan, key(), Shard::whole(8).unwrap()).unwrap().describe();
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c")
    {
        assert!(auto.starts_with("AVX2 + FMA"), "{auto}");
        return;
    }
    println!(
        "WARNING: this machine has no vector path; every comparison above was scalar with scalar ({auto})"
    );
}

/// Adds noise to every 16-bit pattern, infinities and NaN included, with both engines.
#[test]
fn every_sixteen_bit_gradient() {
    fn all<E: Element>(from_bits: impl Fn(u16) -> E, is_nan: impl Fn(&E) -> bool) {
        for stddev in [1e-6, 0.003, 20.0] {
            let plan = Plan::new(1, Form::independent(), stddev).unwrap();
            let run = |isa| {
                let mut gradient: Vec<E> = (0..=u16::MAX).map(&from_bits).collect();
                let shard = Shard::whole(1 << 16).unwrap();
                let mut mechanism = Mechanism::cpu_with(&plan, key(), shard, options(isa, 1)).unwrap();
                // In f16 some sums are infinite, which is reported after the whole step is made.
                let _ = mechanism.add_to(&mut gradient);
                assert_eq!(mechanism.next_step(), 1);
                gradient
            };
            for (i, (left, right)) in run(Isa::Scalar).iter().zip(&run(Isa::Auto)).enumerate() {
                let same = left.to_bits() == right.to_bits() || is_nan(left) && is_nan(right);
                assert!(same, "gradient {i:04x}, stddev {stddev}: {left:?} and {right:?}");
                assert_eq!(is_nan(left), is_nan(&from_bits(i as u16)));
            }
        }
    }
    all(bf16::from_bits, |g| g.is_nan());
    all(f16::from_bits, |g| g.is_nan());
}

/// The run is long enough for the ring to wrap several times: rows made ahead are compared with rows made one by one, stopped
/// and resumed by either kind, under another split.
#[test]
fn a_ring_made_ahead_is_the_plain_ring() {
    let (steps, size) = (50, 6_007);
    let folder = tempfile::tempdir().unwrap();
    let space = Shard::whole(size).unwrap();
    let rows: Vec<Vec<f64>> = (0..steps as usize)
        .map(|t| (0..=t.min(11)).map(|a| 1.5 / (1.0 + a as f64 + 0.01 * t as f64)).collect())
        .collect();
    let toeplitz = |bands| Form::banded_toeplitz(&square_root_coefs(bands)).unwrap();
    let cases = [
        ("16 bands", toeplitz(16)),
        ("40 bands", toeplitz(40)),
        ("12 varying bands", Form::banded(&rows).unwrap()),
        ("16 bands, restarted", toeplitz(16).with_restarts(21).unwrap()),
    ];
    let kind = |compact, isa| CpuOptions { threads: 2, isa, compact, ..CpuOptions::default() };
    for (name, form) in cases {
        let plan = Plan::new(steps, form, 0.75).unwrap().with_finest_grid().unwrap();
        let advance = |mechanism: &mut Mechanism, count: u64| {
            let mut sum = vec![0.0_f32; mechanism.shard().num_coords() as usize];
            (0..count).for_each(|_| mechanism.add_to(&mut sum).unwrap());
            sum
        };
        let make = |options| Mechanism::cpu_with(&plan, key(), space.clone(), options).unwrap();
        let (mut plain, mut ahead) = (make(kind(true, Isa::Scalar)), make(kind(false, Isa::Auto)));
        let mut portable = make(kind(false, Isa::Scalar));
        assert!(plain.state_bytes() == size * plan.form().state_bytes_per_param());
        assert!(ahead.state_bytes() > plain.state_bytes(), "rows are made ahead");
        for stop in [0, 1, 2, 3, 7, 17, 18, 19, 33, 49, 50] {
            while plain.next_step() < stop {
                let expected = advance(&mut plain, 1);
                assert_same(&expected, &advance(&mut ahead, 1), &format!("{name}, step {stop}"));
                assert_same(&expected, &advance(&mut portable, 1), &format!("{name}, step {stop}, portable"));
            }
            let files = [folder.path().join("plain"), folder.path().join("ahead")];
            plain.save(&files[0]).unwrap();
            ahead.save(&files[1]).unwrap();
            assert_eq!(
                std::fs::read(&files[0]).unwrap(),
                std::fs::read(&files[1]).unwrap(),
                "{name}, saved at {stop}"
            );
            // The rest of the run, made by a plain ring, against two shards that make rows ahead from the middle on.
            let resume = |shard, options| {
                Mechanism::resume_cpu(&plan, key(), shard, &files[1..], Resume::Exact, options).unwrap()
            };
            let expected = advance(&mut resume(space.clone(), kind(true, Isa::Auto)), steps - stop);
            for range in [0..1_001, 1_001..size] {
                let mut part = resume(space.within(range.clone()).unwrap(), kind(false, Isa::Auto));
                let got = advance(&mut part, steps - stop);
                let expected = &expected[range.start as usize..range.end as usize];
                assert_same(expected, &got, &format!("{name}, resumed at {stop}, {range:?}"));
            }
        }
    }
}

/// Many steps of tensors that begin and end within tiles, in every gradient type.
#[test]
fn a_ring_made_ahead_of_several_tensors_is_the_plain_ring() {
    fn compare<E: Element>() {
        let steps = 40;
        let layout = Layout::new([("w", 9_000), ("b", 10), ("v", 4_700)]).unwrap();
        let shard = layout.whole().within(300..layout.dim() - 77).unwrap();
        let plan = Plan::new(steps, Form::banded_toeplitz(&square_root_coefs(16)).unwrap(), 0.75)
            .unwrap()
            .with_finest_grid()
            .unwrap();
        let run = |compact, isa| {
            let options = CpuOptions { threads: 2, isa, compact, ..CpuOptions::default() };
            let mut mechanism = Mechanism::cpu_with(&plan, key(), shard.clone(), options).unwrap();
            let lengths = shard.segments().iter().map(|segment| segment.end - segment.start);
            let mut tensors: Vec<Vec<E>> = lengths.map(|len| gradient(len, E::from_f32)).collect();
            for _ in 0..steps {
                let mut slices: Vec<&mut [E]> = tensors.iter_mut().map(Vec::as_mut_slice).collect();
                mechanism.add_to_all(&mut slices).unwrap();
            }
            tensors.concat()
        };
        let plain = run(true, Isa::Scalar);
        assert_same(&plain, &run(false, Isa::Auto), "vector");
        assert_same(&plain, &run(false, Isa::Scalar), "portable");
    }
    compare::<f32>();
    compare::<bf16>();
    compare::<f16>();
}

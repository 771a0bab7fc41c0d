//! The kernels' own source, compiled by the host's C++ compiler, for large comparisons and for mutations of the source.
//!
//! What runs is `kernels/*.cu` with the device headers, thread by thread; only the intrinsics are the host's. Without a C++
//! compiler these tests say so and compare nothing, unless `CORRNOISE_REQUIRE_CXX` is set, as CI does.

use corrnoise::backend::{Add, Backend, Step, StepKernel};
use corrnoise::chacha::{ChaCha, first_columns};
use corrnoise::form::{Kernel, Ring};
use corrnoise::gauss;
use corrnoise::grid::{DitherBlock, DitherKey, Grid};
use corrnoise::{
    Cpu, CpuOptions, Element, Error, Form, Gradients, Incarnations, Plan, Result, Rounds, Row, RunKey, Shard,
    with_element,
};
use corrnoise_testkit::cases::{every_form, inverse_square_root_coefs, square_root_coefs};
use corrnoise_testkit::gradients::{gradient, grid_edge};
use corrnoise_testkit::launch::{Args, key_words};
use half::{bf16, f16};
use module::{Module, Mutation, compiler, one_of, part};
use std::sync::Arc;

#[path = "twin/ahead.rs"]
mod ahead;
#[path = "twin/ahead_cases.rs"]
mod ahead_cases;
#[path = "twin/ahead_mutations.rs"]
mod ahead_mutations;
#[path = "twin/module.rs"]
mod module;

const STEPS: u64 = 8;

/// A backend that runs the twin, on a shard of one segment.
struct Twin {
    module: Arc<Module>,
    keys: Vec<u32>,
    ciphers: Vec<ChaCha>,
    first: u64,
    len: u64,
    slots: usize,
    /// The state, in tiles of 512.
    state: Vec<f32>,
    /// The launch parameters that all steps share.
    shared: Args,
    time: u64,
}

impl Twin {
    fn new(module: Arc<Module>, plan: &Plan, keys: &[RunKey], shard: &Shard) -> Twin {
        let segment = shard.segments()[0].clone();
        let tiles = (segment.end - 1) / 512 - segment.start / 512 + 1;
        let slots = plan.form().num_slots();
        Twin {
            module,
            keys: key_words(keys),
            ciphers: keys.iter().map(|key| ChaCha::new(key.bytes(), plan.rounds())).collect(),
            first: segment.start,
            len: segment.end - segment.start,
            slots,
            state: vec![0.0; tiles as usize * 512 * slots],
            shared: Args::of(plan, tiles, slots),
            time: 0,
        }
    }

    /// The key of a row, and the columns that the host makes of the row.
    fn key_and_columns(&self, row: Row) -> ([u32; 8], [u32; 8]) {
        let key = self.keys.as_chunks::<8>().0[usize::from(row.incarnation())];
        (key, first_columns(&key, row.stream()))
    }

    /// Makes a step on a gradient of the type that `element` is the tag of.
    ///
    /// # Safety
    /// `gradient` is the address of as many values as the segment has.
    unsafe fn run(&mut self, step: &Step<'_>, gradient: u64, element: u32) {
        let segment = [gradient, self.first, self.len, 0];
        let mut words: Vec<u32> = Vec::new();
        let mut args = Args {
            segments: segment.as_ptr() as u64,
            state: self.state.as_mut_ptr() as u64,
            keys: self.keys.as_ptr() as u64,
            ..self.shared
        };
        let cipher = &self.ciphers[usize::from(step.dither.incarnation())];
        args.step.dither = DitherBlock::new(cipher, step.dither).key(step.number).0;
        args.set_add(step.add);
        match &step.kernel {
            StepKernel::Blt { row, scale, decay, fresh } => {
                args.set_blt(scale, decay);
                (args.step.row, args.step.head) = (row.stream(), u32::from(*fresh));
                (args.key, args.step.columns) = self.key_and_columns(*row);
            }
            StepKernel::Ring { row, coefs } => {
                words.extend(coefs.iter().map(|c| c.to_bits()));
                let slots = self.slots.max(1) as u64;
                (args.step.row, args.step.count) = (row.stream(), coefs.len() as u32);
                args.step.head = ((slots - self.time % slots) % slots) as u32;
                (args.key, args.step.columns) = self.key_and_columns(*row);
            }
            StepKernel::Regenerate { terms } => {
                for (row, weight) in *terms {
                    words.extend([row.stream() as u32, (row.stream() >> 32) as u32, weight.to_bits(), 0]);
                    words.extend(self.key_and_columns(*row).1);
                }
                args.step.count = terms.len() as u32;
            }
        }
        // The list holds 64-bit numbers, as terms do.
        let list: Vec<u64> =
            words.chunks(2).map(|w| u64::from(w[0]) | u64::from(*w.get(1).unwrap_or(&0)) << 32).collect();
        args.list = list.as_ptr() as u64;
        // SAFETY: the gradient has the segment's values, the state whole tiles, lists and keys what the step needs.
        unsafe { self.module.run_tiles(&args, element) };
        self.time += 1;
    }
}

impl Backend for Twin {
    type Gradients<'list, 'memory: 'list> = Gradients<'list, 'memory>;
    fn check(&self, _: &Gradients<'_, '_>) -> Result<()> {
        Ok(())
    }
    fn step(&mut self, step: &Step<'_>, gradients: Gradients<'_, '_>) -> Result<()> {
        let dtype = gradients.dtype();
        with_element!(dtype, E => {
            let gradient = &mut gradients.slices::<E>().unwrap()[0];
            assert_eq!(gradient.len() as u64, self.len);
            // SAFETY: the length was compared.
            unsafe { self.run(step, gradient.as_mut_ptr() as u64, dtype.tag()) };
        });
        Ok(())
    }
    fn read_state(&self, _: usize, _: u64, _: &mut [u8]) -> Result<()> {
        Err(Error::Device("the twin keeps its state".into()))
    }
    fn write_state(&mut self, _: usize, _: u64, _: &[u8]) -> Result<()> {
        Err(Error::Device("the twin keeps its state".into()))
    }
}

/// What the noise of a comparison is added to, and how.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Onto {
    /// To zeros and without a grid: every bit of the noise shows.
    Plain,
    /// To values of all sizes, on the plan's grid.
    Values,
    /// To values that bring the sum between two points of the grid: every bit of noise and dither shows.
    Edges,
}

/// Runs a plan on both; the gradient lies between guards that nobody may touch. Gives the first difference.
fn compare<E: Element>(module: &Arc<Module>, plan: &Plan, shard: &Shard, onto: Onto) -> Option<String> {
    const GUARD: usize = 600;
    let (first, len) = (shard.segments()[0].start, shard.num_coords() as usize);
    let keys = [RunKey::from_bytes(std::array::from_fn(|i| (i * 37 + 11) as u8))];
    let new = || Cpu::new(plan, &keys, shard, CpuOptions::default()).unwrap();
    let (mut cpu, mut ahead) = (new(), new());
    let mut twin = Twin::new(module.clone(), plan, &keys, shard);
    let cipher = ChaCha::new(keys[0].bytes(), plan.rounds());
    let mut terms = Vec::new();
    for number in 0..plan.num_steps() {
        let lowered = Step::lower(plan, number, &Incarnations::first(), &mut terms).unwrap();
        let add = if onto == Onto::Plain { Add::Plain(plan.scale(number)) } else { lowered.add };
        let mut expected: Vec<E> = gradient((len + 2 * GUARD) as u64, E::from_f32);
        let own = GUARD..GUARD + len;
        match onto {
            Onto::Values => {}
            Onto::Plain => expected[own.clone()].fill(E::from_f32(0.0)),
            Onto::Edges => {
                let mut noise = vec![0.0_f32; len];
                let plain = Step { add: Add::Plain(1.0), ..lowered };
                ahead.step(&plain, Gradients::new(&mut [&mut noise[..]])).unwrap();
                let (grid, dither) = (plan.grid(number), DitherBlock::new(&cipher, plain.dither).key(number));
                for (i, (value, z)) in expected[own.clone()].iter_mut().zip(noise).enumerate() {
                    let fraction = grid.noise(z, dither.word(first + i as u64)).1;
                    *value = E::from_f32(grid_edge(fraction, grid.unit, i, i % 2 == 0));
                }
            }
        }
        let lowered = Step::lower(plan, number, &Incarnations::first(), &mut terms).unwrap();
        let step = Step { add, ..lowered };
        let mut got = expected.clone();
        cpu.step(&step, Gradients::new(&mut [&mut expected[own.clone()]])).unwrap();
        twin.step(&step, Gradients::new(&mut [&mut got[own]])).unwrap();
        if let Some(at) = (0..got.len()).find(|&i| expected[i].to_bits() != got[i].to_bits()) {
            return Some(format!(
                "{onto:?}, step {number}, coordinate {}: {:?}, {:?}",
                at as i64 - GUARD as i64,
                expected[at],
                got[at]
            ));
        }
    }
    None
}

/// The modules of `kernels/tools/variants.py`, each with the form that runs it.
fn modules() -> Vec<(String, &'static str, String, Form)> {
    let ring = Kernel::Ring(Ring::toeplitz(&square_root_coefs(6)[1..]).unwrap());
    let blts = every_form(STEPS).into_iter().take(9).enumerate();
    let mut modules: Vec<_> =
        blts.map(|(d, (name, form))| (name, "blt.cu", format!("BUFFERS={d}"), form)).collect();
    modules.push(("ring".into(), "ring.cu", "NOTHING=0".into(), ring.into()));
    let regenerate = Form::regenerate(&inverse_square_root_coefs(4)).unwrap();
    modules.push(("regenerate".into(), "regenerate.cu", "NOTHING=0".into(), regenerate));
    modules
}

/// Compares 1,250,003 coordinates × 8 steps of every kernel and gradient type, a tenth of them unless everything is asked for.
#[test]
fn values_of_every_kernel() {
    let Some(compiler) = compiler() else { return };
    let shard = Shard::whole(2_000_000).unwrap().within(5..part(1_250_008)).unwrap();
    for (name, source, define, form) in modules() {
        let module = Arc::new(Module::build(&compiler, &name, source, &define, None));
        let plan = Plan::new(STEPS, form, 0.7313).unwrap();
        for (element, difference) in [
            ("f32", compare::<f32>(&module, &plan, &shard, Onto::Plain)),
            ("f32", compare::<f32>(&module, &plan, &shard, Onto::Edges)),
            ("bf16", compare::<bf16>(&module, &plan, &shard, Onto::Values)),
            ("f16", compare::<f16>(&module, &plan, &shard, Onto::Values)),
        ] {
            assert_eq!(difference, None, "{name}, {element}");
        }
        let native = format!("{define} NATIVE_BF16");
        let native = Arc::new(Module::build(&compiler, &format!("{name}_80"), source, &native, None));
        for onto in [Onto::Plain, Onto::Values] {
            assert_eq!(compare::<bf16>(&native, &plan, &shard, onto), None, "{name}_80, bf16");
        }
        let small = Shard::whole(1 << 40).unwrap().within((1 << 36) - 700..(1 << 36) + 613).unwrap();
        for rounds in [Rounds::R8, Rounds::R20] {
            let plan = plan.clone().with_rounds(rounds).unwrap();
            for onto in [Onto::Plain, Onto::Values, Onto::Edges] {
                assert_eq!(compare::<f32>(&module, &plan, &small, onto), None, "{name}, {rounds:?}");
            }
        }
    }
}

/// Compares the device's functions with the reference on words and gradients that a run meets once in billions.
#[test]
fn rare_words_and_gradients() {
    let Some(compiler) = compiler() else { return };
    let module = Module::build(&compiler, "functions", "blt.cu", "BUFFERS=0", None);
    // SAFETY: the functions of entry.cpp have these types.
    let (radius, sum, dither) = unsafe {
        (
            *module.library.get::<unsafe extern "C" fn(u32, u32, u32) -> f32>(b"tail_radius").unwrap(),
            *module
                .library
                .get::<unsafe extern "C" fn(*const f32, f32, f32, u32) -> f32>(b"sum_on_grid")
                .unwrap(),
            *module.library.get::<unsafe extern "C" fn(*const u32, u64, *mut u32)>(b"thread_dither").unwrap(),
        )
    };
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 32) as u32
    };
    // Words of all sizes: a tail's first word that is small too is where its second shows.
    for _ in 0..1_000_000 {
        let mut sized = |limit: u32| next().checked_shr(next() % limit).unwrap_or(0);
        let (word, first, second) = (sized(33) & 0xffff, sized(33), sized(33));
        let word = if second % 3 == 0 { 0 } else { word };
        // SAFETY: the function reads its arguments alone.
        let got = unsafe { radius(word, first, second) };
        let expected = gauss::tail_radius(word, first, second);
        assert_eq!(got.to_bits(), expected.to_bits(), "{word:#x}, {first:#x}, {second:#x}");
    }
    for (first, second, expected) in [(0, 0, 192.0_f64), (0, 2, 188.830_074_998_557_68)] {
        // SAFETY: as above.
        let got = f64::from(unsafe { radius(0, first, second) });
        assert!((got - (expected * std::f64::consts::LN_2).sqrt()).abs() < 1e-5, "{got}");
    }
    for _ in 0..1_000_000 {
        let key: [u32; 4] = std::array::from_fn(|_| next());
        let block = (u64::from(next()) << 32 | u64::from(next())) >> (next() % 64);
        let mut words = [0; 2];
        // SAFETY: the function reads four words and writes two.
        unsafe { dither(key.as_ptr(), block, words.as_mut_ptr()) };
        let tile = DitherKey(key).of_tile(block / 32);
        assert_eq!(words, [tile.word(4 * (block % 32) as u32), tile.stride], "{key:x?}, {block}");
    }
    for i in 0..4_000_000_u32 {
        let exponent = (next() % 253) as i32 - 126;
        let scale =
            2_f32.powi(exponent.clamp(-100, 90) + 10 + (next() % 8) as i32) * (1.0 + next() as f32 / 4.3e9);
        let grid = Grid::new(exponent, if i % 5 == 0 { -scale } else { scale });
        let normal = (next() as i32 as f32) * 2_f32.powi(-28 - (next() % 20) as i32);
        // Every other gradient is near the middle between two points, as exactly as f32 has it; the others are of any size.
        let word = next();
        let edge = 3.5 - grid.noise(normal, word).1 + (next() % 5) as f32 - 2.0;
        let units = match i % 8 {
            0 | 1 => edge,
            2 => edge.next_down(),
            3 => edge.next_up(),
            4 => (next() as i32 as f32) * 2_f32.powi(-8 - (next() % 8) as i32) + 0.5,
            5 => (next() >> 8) as f32 * 4.0 - 3e7,
            6 => {
                [0.5, -0.5, 0.0, -0.0, 1e6, f32::INFINITY, f32::NEG_INFINITY, f32::NAN][(next() % 8) as usize]
            }
            _ => f32::from_bits(next()),
        };
        let g = if i % 8 == 7 { units } else { units * grid.unit };
        let numbers = [grid.unit, grid.per_unit, grid.scale, grid.dither];
        // SAFETY: the function reads four numbers.
        let got = unsafe { sum(numbers.as_ptr(), g, normal, word) };
        let expected = grid.add(g, normal, word);
        let same = got.to_bits() == expected.to_bits() || (got.is_nan() && expected.is_nan());
        assert!(same, "{grid:?}, {g:?}, {normal:?}, {word:#x}: {got:?} and {expected:?}");
    }
}

/// The kernels' square root is right whatever the hardware's approximation is: of every `stride`-th float of two binades, with every y
/// within 2^−21.5 of the reciprocal root, where the PTX manual promises 2^−22.9. Two binades stand for all: four times x and half of y
/// scale every intermediate result by a power of two.
fn roots_are_correctly_rounded(stride: u32) {
    let Some(compiler) = compiler() else { return };
    let module = Module::build(&compiler, "roots", "blt.cu", "BUFFERS=0", None);
    type WrongRoots = unsafe extern "C" fn(u32, u32, u32, f64, *mut u64) -> u64;
    // SAFETY: the function of entry.cpp has this type.
    let wrong_roots = *unsafe { module.library.get::<WrongRoots>(b"wrong_roots") }.unwrap();
    let count = |stride: u32, bound: f64| {
        let mut pairs = 0;
        // SAFETY: the function writes one number.
        let wrong =
            unsafe { wrong_roots(1_f32.to_bits(), 4_f32.to_bits(), stride, 2_f64.powf(bound), &mut pairs) };
        (wrong, pairs)
    };
    for bound in [-22.9, -22.4, -21.5] {
        let (wrong, pairs) = count(stride, bound);
        println!("within 2^{bound}: {pairs} pairs, {wrong} wrong");
        assert!(wrong == 0 && pairs > u64::from((1 << 24) / stride), "within 2^{bound}: {wrong} of {pairs}");
    }
    // The test sees wrong roots where there are some.
    assert!(count(100_003, -8.0).0 > 0);
}

#[test]
fn roots_are_correctly_rounded_at_samples() {
    roots_are_correctly_rounded(1009);
}

/// Takes about a minute; `CONTRIBUTING.md` has the command.
#[test]
#[ignore = "exhaustive"]
fn every_root_is_correctly_rounded() {
    roots_are_correctly_rounded(1);
}

/// Makes every mistake that the comparison should find, on purpose: each must show.
#[test]
fn mutations_of_the_source_are_noticed() {
    let Some(compiler) = compiler() else { return };
    let mutations: [(&str, Mutation<'_>); 17] = [
        ("a wrong rotation", ("chacha.cuh", "rotate_left(b ^ c, 12)", "rotate_left(b ^ c, 13)")),
        ("a swapped lane", ("launch.cuh", "32 * noise_tile + lane;", "32 * noise_tile + (lane ^ 1);")),
        (
            "an fma of the sine",
            (
                "gauss.cuh",
                "__fmaf_rn(t, BITS(0x3fc90fdb), __fmul_rn(horner_sin(y), t))",
                "__fadd_rn(__fmul_rn(t, BITS(0x3fc90fdb)), __fmul_rn(horner_sin(y), t))",
            ),
        ),
        (
            "an fma of the update",
            (
                "blt.cu",
                "__fmaf_rn(args.decay[i], m[i].v[j], z[4 * quad + j])",
                "__fadd_rn(__fmul_rn(args.decay[i], m[i].v[j]), z[4 * quad + j])",
            ),
        ),
        ("a coefficient of the logarithm, 1 ulp", ("gauss.cuh", "0xbf2ad1ea", "0xbf2ad1eb")),
        ("the highest coefficient of the cosine, 1 ulp", ("gauss.cuh", "0x3a6b4255", "0x3a6b4256")),
        (
            "a length off by one",
            ("launch.cuh", "work.length = (i64)segment.length;", "work.length = (i64)segment.length - 1;"),
        ),
        ("a missing bound", ("gradient.cuh", "if (at >= 0 && at < length) {", "if (at >= 0) {")),
        ("a missing bound by fours", ("launch.cuh", " && work.index + place_of(15) < work.length", "")),
        (
            "a stride of another quad",
            ("gradient.cuh", "dither.stride * place;", "dither.stride * (place % 127);"),
        ),
        ("a secret word in another's place", ("gradient.cuh", "mix(x + key[2])", "mix(x + key[3])")),
        (
            "an fma of the dither",
            (
                "gradient.cuh",
                "__fmaf_rn(__int2float_rn((int)word), grid.dither, undithered)",
                "__fadd_rn(__fmul_rn(__int2float_rn((int)word), grid.dither), undithered)",
            ),
        ),
        ("no dither", ("gradient.cuh", "__int2float_rn((int)word)", "0.0f")),
        ("halves rounded down", ("gradient.cuh", "sum >= offset", "sum > offset")),
        ("a sum that is not cut off", ("gradient.cuh", "__fadd_rz(rest", "__fadd_rn(rest")),
        ("a column in another's place", ("chacha.cuh", "row.columns[4 + i]", "row.columns[i]")),
        ("no tail extension", ("gauss.cuh", "if (smallest < TAIL_LIMIT)", "if (false)")),
    ];
    let (name, source, define, form) = modules().swap_remove(4);
    let plan = Plan::new(STEPS, form, 0.7313).unwrap();
    // The first is aligned to four values, the second is not: a thread adds by fours or one by one.
    let shards = [8..20_006, 5..600_008].map(|range| Shard::whole(1_000_000).unwrap().within(range).unwrap());
    let difference = |mutation| {
        let module = Arc::new(Module::build(&compiler, &name, source, &define, mutation));
        let differs = |shard| {
            [Onto::Plain, Onto::Edges]
                .into_iter()
                .find_map(|onto| compare::<f32>(&module, &plan, shard, onto))
        };
        shards.iter().find_map(differs)
    };
    for (mistake, mutation) in mutations.into_iter().step_by(one_of()) {
        let difference = difference(Some(mutation));
        println!("{mistake}: {difference:?}");
        assert!(difference.is_some(), "{mistake} was not noticed");
    }
    assert_eq!(difference(None), None);
}

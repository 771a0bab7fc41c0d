//! The committed kernels that make rows ahead and add them, launched directly: values against the scalar CPU engine, and bytes.

mod common;

use common::{Arg, Gpu, function};
use corrnoise::backend::{Add, Backend, Step, StepKernel};
use corrnoise::form::Kernel;
use corrnoise::{Cpu, CpuOptions, Form, Gradients, Incarnations, Isa, Plan, RunKey, Shard};
use corrnoise_testkit::cases::{every_form, inverse_square_root_coefs, square_root_coefs};
use cuda::driver::{Out, corrnoise_sim_traffic};

/// The struct `Step` of `kernels/launch.cuh`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Record {
    number: u64,
    row: u64,
    dither: [u32; 4],
    columns: [u32; 8],
    scale: f32,
    head: u32,
    list: u32,
    count: u32,
}

/// The struct `Args` of `kernels/launch.cuh`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Args {
    segments: u64,
    state: u64,
    list: u64,
    keys: u64,
    schedule: [u64; 3],
    overflow: u64,
    num_tiles: u64,
    step: Record,
    num_segments: u32,
    four_rounds: u32,
    num_slots: u32,
    one: u32,
    grid: [f32; 2],
    key: [u32; 8],
    scale: [f32; 8],
    decay: [f32; 8],
    due: u64,
    base: u64,
    rows: u64,
    rows_ahead: u32,
    padding: u32,
}
const _: () = assert!(size_of::<Args>() == 304);

impl Args {
    fn bytes(self) -> Arg {
        let bytes: *const Args = &self;
        // SAFETY: the struct is plain numbers without gaps.
        Arg::Bytes(unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), size_of::<Args>()) }.to_vec())
    }
}

/// A step's coefficients, or its rows by name, each with its weight.
type StepOfTurn = (Vec<f32>, Vec<(u64, f32)>);

/// The table of the turn that begins with these steps: coefficients of a ring, or terms by name, each with its weight.
fn table(form: &Form, pitch: usize, turn: &[StepOfTurn]) -> Vec<u32> {
    let mut words = Vec::new();
    match form.kernel() {
        Kernel::Blt(_) => {}
        Kernel::Ring(ring) => {
            let h = ring.num_slots();
            words.resize(pitch * (1 + h + pitch), f32::NAN.to_bits());
            for (k, (coefs, _)) in turn.iter().enumerate() {
                words[k] = coefs.len() as u32;
                for (coef, age) in coefs.iter().zip(1..) {
                    let row = if age > k { age - k - 1 } else { h + k - age };
                    words[pitch * (1 + row) + k] = (-coef).to_bits();
                }
            }
        }
        Kernel::Regenerate(_) => {
            let mut rows: Vec<u64> =
                turn.iter().flat_map(|(_, terms)| terms.iter().map(|term| term.0)).collect();
            rows.sort_unstable();
            rows.dedup();
            words.extend([rows.len() as u32, 0, 0, 0]);
            for row in rows.into_iter().rev() {
                words.extend([row as u32, (row >> 32) as u32, 0, 0]);
                words.extend((0..pitch).map(|k| {
                    let term = turn.get(k).and_then(|(_, terms)| terms.iter().find(|term| term.0 == row));
                    term.map_or(0.0, |term| term.1).to_bits()
                }));
            }
        }
    }
    words
}

/// The bytes that 16-byte accesses of launches moved. The test links the stand-in, so it asks this instance and not the loaded library's.
fn wide_bytes(gpu: &Gpu) -> u64 {
    let mut traffic = cuda::Traffic::default();
    // SAFETY: `traffic` is writable.
    assert!(unsafe { corrnoise_sim_traffic(gpu.ordinal as i32, Out::new(&mut traffic)) });
    16 * (traffic.loads_of(16) + traffic.stores_of(16))
}

/// Runs `make` and `add` of every step on memory that holds NaN, and compares with the scalar engine. Gives the bytes per parameter and step
/// that 16-byte accesses moved in a turn of `k` steps near the end, without those of tables.
fn run(make: &str, form: Form, k: usize, pitch: usize, num_steps: u64) -> f64 {
    let gpu = Gpu::new();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../cuda/ptx/");
    let load =
        |name: &str| gpu.load(&std::fs::read_to_string(format!("{folder}{name}.ptx")).unwrap()).unwrap();
    let (make_kernel, add) =
        (function(load(make), "make").unwrap(), function(load("add"), "noise_f32").unwrap());
    let (tiles, len) = (2 * k as u64, 2 * k * 512);
    let plan = Plan::new(num_steps, form, 0.7313).unwrap();
    let form = plan.form();
    let ring = matches!(form.kernel(), Kernel::Ring(_));
    let slots = k + if ring { form.num_slots() } else { 0 };
    let key = RunKey::from_bytes(std::array::from_fn(|i| (i * 37 + 11) as u8));
    let mut words = [0; 8];
    for (word, bytes) in words.iter_mut().zip(key.bytes().as_chunks::<4>().0) {
        *word = u32::from_le_bytes(*bytes);
    }
    let shard = Shard::whole(len as u64).unwrap();
    let options = CpuOptions { isa: Isa::Scalar, compact: true, ..CpuOptions::default() };
    let mut cpu = Cpu::new(&plan, &[key], &shard, options).unwrap();
    let incarnations = Incarnations::first();
    let mut terms = Vec::new();
    let recipes: Vec<_> = (0..num_steps)
        .map(|number| match Step::lower(&plan, number, &incarnations, &mut terms).unwrap().kernel {
            StepKernel::Ring { coefs, .. } => (coefs.to_vec(), Vec::new()),
            StepKernel::Regenerate { terms } => {
                (Vec::new(), terms.iter().map(|(row, weight)| (row.stream(), *weight)).collect())
            }
            StepKernel::Blt { .. } => (Vec::new(), Vec::new()),
        })
        .collect();
    let rows = gpu.upload(&vec![f32::NAN; slots * len]);
    let gradient = gpu.alloc(4 * len);
    let mut args = Args {
        segments: gpu.upload(&[gradient, 0, len as u64, 0]),
        state: if ring { rows } else { gpu.upload(&vec![f32::NAN; len * form.num_slots().max(1)]) },
        list: gpu.alloc(1 << 16),
        keys: gpu.upload(&words),
        num_tiles: tiles,
        num_segments: 1,
        four_rounds: u32::from(plan.rounds()) / 4,
        num_slots: slots as u32,
        key: words,
        due: gpu.upload(&vec![0_u32; tiles as usize]),
        rows,
        rows_ahead: k as u32,
        ..Args::default()
    };
    if let Kernel::Blt(blt) = form.kernel() {
        args.scale[..blt.scale().len()].copy_from_slice(blt.scale());
        args.decay[..blt.decay().len()].copy_from_slice(blt.decay());
    }
    let (mut before, mut of_tables, mut bytes) = (0, 0, 0.0);
    for number in 0..num_steps {
        // Every turn that begins in these steps has all of its rows.
        if number + 2 * k as u64 == num_steps {
            (before, of_tables) = (wide_bytes(&gpu), 0);
        }
        if number + k as u64 == num_steps {
            bytes = (wide_bytes(&gpu) - before - of_tables) as f64 / (len * k) as f64;
        }
        let mut step = Step::lower(&plan, number, &incarnations, &mut terms).unwrap();
        step.add = Add::Plain(1.0);
        let left = (num_steps - number).min(k as u64);
        let words = table(form, pitch, &recipes[number as usize..(number + left) as usize]);
        gpu.write(args.list, &words).unwrap();
        // Row names of a run's first incarnation are the numbers of steps.
        args.step = Record { number, row: number, scale: 1.0, count: left as u32, ..Record::default() };
        args.step.head = (number % slots as u64) as u32;
        if matches!(form.kernel(), Kernel::Blt(_)) && number < 2 * k as u64 {
            // Step 0 begins with zero buffers: this turn's first row at time 0, and the last turn's row until time K.
            args.step.list = (1_u32 << k).checked_shr(number as u32).unwrap_or(0);
        }
        let due = if number == 0 { tiles } else { 2 };
        let per_block = if ring { 1 } else { 4 };
        let blocks = due.div_ceil(per_block) as u32;
        gpu.launch(make_kernel, blocks, 128, &[args.bytes()])
            .unwrap_or_else(|e| panic!("{make}: {}", e.text));
        if ring {
            of_tables += due * 4 * (words.len() - pitch) as u64;
        }
        let mut expected = vec![0.0_f32; len];
        cpu.step(&step, Gradients::new(&mut [&mut expected[..]])).unwrap();
        gpu.write(gradient, &vec![0.0_f32; len]).unwrap();
        let adding = Args { state: rows, ..args };
        gpu.launch(add, tiles.div_ceil(4) as u32, 128, &[adding.bytes()]).unwrap();
        let got: Vec<f32> = gpu.read(gradient, len).unwrap();
        let differs = (0..len).find(|&i| expected[i].to_bits() != got[i].to_bits());
        assert_eq!(differs.map(|i| (i, expected[i], got[i])), None, "{make}, step {number}");
    }
    bytes
}

#[test]
fn rings_ahead_have_the_bits_of_the_scalar_engine_in_few_bytes() {
    let ring = |bands| Form::banded_toeplitz(&square_root_coefs(bands)).unwrap();
    let bytes = run("make_ring8", ring(16), 8, 8, 41);
    assert_eq!(bytes, 16.0 + 4.0 * 15.0 / 8.0);
    let bytes = run("make_ring16", ring(64), 16, 16, 112);
    assert_eq!(bytes, 16.0 + 4.0 * 63.0 / 16.0);
    run("make_ring8", ring(5), 3, 8, 20);
}

#[test]
fn blts_ahead_have_the_bits_of_the_scalar_engine_in_few_bytes() {
    let (_, form) = every_form(1).swap_remove(4);
    let bytes = run("make_blt4", form, 8, 16, 37);
    assert_eq!(bytes, 20.0 + 8.0 * 4.0 / 8.0);
}

#[test]
fn sums_ahead_have_the_bits_of_the_scalar_engine() {
    let form = Form::regenerate(&inverse_square_root_coefs(5)).unwrap();
    run("make_regenerate", form, 8, 8, 29);
}

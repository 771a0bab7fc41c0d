//! The committed kernels that make rows ahead and add them, launched directly: values against the scalar CPU engine, and bytes.

mod common;

use common::{Arg, Gpu, function};
use corrnoise::backend::{Add, Backend, Step};
use corrnoise::form::Kernel;
use corrnoise::{Cpu, CpuOptions, Form, Gradients, Incarnations, Isa, Plan, RunKey, Shard};
use corrnoise_testkit::cases::{every_form, inverse_square_root_coefs, square_root_coefs};
use corrnoise_testkit::launch::{Args, key_words};
use corrnoise_testkit::turn::{Recipe, record, table};
use cuda::driver::{Out, corrnoise_sim_traffic};

/// The bytes that 16-byte accesses of launches moved. The test links the stand-in, so it asks this instance and not the loaded library's.
fn wide_bytes(gpu: &Gpu) -> u64 {
    let mut traffic = cuda::Traffic::default();
    // SAFETY: `traffic` is writable.
    assert!(unsafe { corrnoise_sim_traffic(gpu.ordinal as i32, Out::new(&mut traffic)) });
    16 * (traffic.loads_of(16) + traffic.stores_of(16))
}

/// Runs `make` and `add` of every step on memory that holds NaN, and compares with the scalar engine. Gives the bytes per parameter and step
/// that 16-byte accesses moved in a turn of `k` steps near the end, without those of tables.
fn run(make: &str, form: Form, k: usize, max_rows: usize, num_steps: u64) -> f64 {
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
    let keys = [RunKey::from_bytes(std::array::from_fn(|i| (i * 37 + 11) as u8))];
    let words = key_words(&keys);
    let shard = Shard::whole(len as u64).unwrap();
    let options = CpuOptions { isa: Isa::Scalar, compact: true, ..CpuOptions::default() };
    let mut cpu = Cpu::new(&plan, &keys, &shard, options).unwrap();
    let incarnations = Incarnations::first();
    let recipes = Recipe::all(&plan, &incarnations);
    let mut terms = Vec::new();
    let rows = gpu.upload(&vec![f32::NAN; slots * len]);
    let gradient = gpu.alloc(4 * len);
    let mut args = Args {
        segments: gpu.upload(&[gradient, 0, len as u64, 0]),
        state: if ring { rows } else { gpu.upload(&vec![f32::NAN; len * form.num_slots().max(1)]) },
        list: gpu.alloc(1 << 16),
        keys: gpu.upload(&words),
        due: gpu.upload(&vec![0_u32; tiles as usize]),
        rows,
        rows_ahead: k as u32,
        ..Args::of(&plan, tiles, slots)
    };
    args.key.copy_from_slice(&words);
    if let Kernel::Blt(blt) = form.kernel() {
        args.set_blt(blt.scale(), blt.decay());
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
        args.step = record(&recipes, number, 0, k, slots);
        args.set_add(step.add);
        let turn = &recipes[number as usize..][..args.step.count as usize];
        let words = table(form, max_rows, turn);
        gpu.write(args.list, &words).unwrap();
        let due = if number == 0 { tiles } else { 2 };
        let per_block = if ring { 1 } else { 4 };
        let blocks = due.div_ceil(per_block) as u32;
        gpu.launch(make_kernel, blocks, 128, &[Arg::Bytes(args.bytes())])
            .unwrap_or_else(|e| panic!("{make}: {}", e.text));
        if ring {
            of_tables += due * 4 * (words.len() - max_rows) as u64;
        }
        let mut expected = vec![0.0_f32; len];
        cpu.step(&step, Gradients::new(&mut [&mut expected[..]])).unwrap();
        gpu.write(gradient, &vec![0.0_f32; len]).unwrap();
        let adding = Args { state: rows, ..args };
        gpu.launch(add, tiles.div_ceil(4) as u32, 128, &[Arg::Bytes(adding.bytes())]).unwrap();
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

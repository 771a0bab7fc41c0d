//! The kernels' own source, compiled by the host's C++ compiler, for large comparisons and for mutations of the source.
//!
//! What runs is `kernels/*.cu` with the device headers, thread by thread; only the intrinsics are the host's. Without a C++
//! compiler these tests say so and compare nothing, unless `CORRNOISE_REQUIRE_CXX` is set, as CI does.

use corrnoise::backend::{Backend, Step, StepKernel};
use corrnoise::form::{Kernel, Ring};
use corrnoise::{
    Element, Error, Form, Gradients, Key, Mechanism, Plan, Result, Rounds, RunKey, Shard, with_element,
};
use corrnoise_testkit::cases::{every_form, inverse_square_root_coefs, square_root_coefs};
use corrnoise_testkit::gradients::gradient;
use half::{bf16, f16};
use std::ffi::c_void;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

const STEPS: u64 = 8;

/// The struct `Call` of `twin/entry.cpp`, field by field.
#[repr(C)]
#[derive(Clone, Copy)]
struct Call {
    gradient: *mut c_void,
    first: u64,
    length: u64,
    state: *mut c_void,
    list: *const c_void,
    keys: *const u32,
    scale: *const f32,
    decay: *const f32,
    row: u64,
    incarnation: u64,
    out_scale: f32,
    head: u32,
    count: u32,
    four_rounds: u32,
    num_slots: u32,
    num_buffers: u32,
    first_tile: u64,
    end_tile: u64,
}

/// A call that is sent to a thread, which touches no other thread's tiles.
struct Share(Call);
// SAFETY: the memory behind it outlives the threads, and their tiles are disjoint.
unsafe impl Send for Share {}

type Entry = unsafe extern "C" fn(*const Call, u32);

/// A module of `kernels/`, compiled for the host.
struct Module {
    entry: Entry,
    _library: libloading::Library,
}

/// A change to a source file: every occurrence of the first text becomes the second.
type Mutation<'a> = (&'a str, &'a str, &'a str);

fn compiler() -> Option<String> {
    let named = std::env::var("CXX").ok();
    let found = named
        .into_iter()
        .chain(["c++".into(), "g++".into(), "clang++".into()])
        .find(|name| Command::new(name).arg("--version").output().is_ok_and(|out| out.status.success()));
    let required = std::env::var_os("CORRNOISE_REQUIRE_CXX").is_some();
    assert!(found.is_some() || !required, "CORRNOISE_REQUIRE_CXX is set, and there is no C++ compiler");
    if found.is_none() {
        println!(
            "WARNING: no C++ compiler (CXX, c++, g++, clang++): the kernels' host twin was NOT compared"
        );
    }
    found
}

impl Module {
    fn build(
        compiler: &str,
        name: &str,
        source: &str,
        define: &str,
        mutation: Option<Mutation<'_>>,
    ) -> Module {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        // A folder of its own, so that tests that run at the same time do not overwrite each other.
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        for file in std::fs::read_dir(root.join("kernels")).unwrap().map(|entry| entry.unwrap().path()) {
            let name = file.file_name().unwrap().to_str().unwrap();
            if name.ends_with(".cu") || name.ends_with(".cuh") {
                let mut text = std::fs::read_to_string(&file).unwrap();
                if let Some((in_file, from, to)) = mutation.filter(|mutation| mutation.0 == name) {
                    assert!(text.contains(from), "{in_file} does not contain {from:?}");
                    text = text.replace(from, to);
                }
                std::fs::write(folder.path().join(name), text).unwrap();
            }
        }
        let library: PathBuf = folder.path().join(format!("{name}.so"));
        let mut command = Command::new(compiler);
        command.args(["-std=c++14", "-O2", "-ffp-contract=off", "-fno-strict-aliasing", "-fno-math-errno"]);
        command.args(["-shared", "-fPIC", "-w", "-o"]).arg(&library);
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c") {
            command.args(["-mfma", "-mf16c"]);
        }
        command.arg(format!("-DKERNEL=\"{source}\"")).arg(format!("-D{define}"));
        command.arg(format!("-I{}", folder.path().display())).arg(root.join("tests/twin/entry.cpp"));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&output.stderr));
        // SAFETY: the library is ours and has no initialisers.
        let library = unsafe { libloading::Library::new(&library) }.unwrap();
        // SAFETY: `run_tiles` in entry.cpp has this type.
        let entry = *unsafe { library.get::<Entry>(b"run_tiles") }.unwrap();
        Module { entry, _library: library }
    }
}

/// A backend that runs the twin, on a shard of one segment.
struct Twin {
    module: Arc<Module>,
    keys: Vec<u32>,
    first: u64,
    len: u64,
    four_rounds: u32,
    slots: usize,
    /// The state, in tiles of 512.
    state: Vec<f32>,
    time: u64,
}

impl Twin {
    fn new(module: Arc<Module>, plan: &Plan, keys: &[RunKey], shard: &Shard) -> Twin {
        let segment = shard.segments()[0].clone();
        let tiles = (segment.end - 1) / 512 - segment.start / 512 + 1;
        let slots = plan.form().num_slots();
        let word = |bytes: &[u8; 4]| u32::from_le_bytes(*bytes);
        Twin {
            module,
            keys: keys.iter().flat_map(|key| key.bytes().as_chunks::<4>().0.iter().map(word)).collect(),
            first: segment.start,
            len: segment.end - segment.start,
            four_rounds: u32::from(plan.rounds()) / 4,
            slots,
            state: vec![0.0; tiles as usize * 512 * slots],
            time: 0,
        }
    }

    fn run(&mut self, step: &Step<'_>, gradient: *mut c_void, element: u32) {
        let mut words: Vec<u32> = Vec::new();
        let mut call = Call {
            gradient,
            first: self.first,
            length: self.len,
            state: self.state.as_mut_ptr().cast(),
            list: std::ptr::null(),
            keys: self.keys.as_ptr(),
            scale: std::ptr::null(),
            decay: std::ptr::null(),
            row: 0,
            incarnation: 0,
            out_scale: step.scale,
            head: 0,
            count: 0,
            four_rounds: self.four_rounds,
            num_slots: self.slots as u32,
            num_buffers: 0,
            first_tile: 0,
            end_tile: 0,
        };
        match &step.kernel {
            StepKernel::Blt { row, scale, decay, fresh } => {
                (call.scale, call.decay, call.num_buffers) =
                    (scale.as_ptr(), decay.as_ptr(), scale.len() as u32);
                (call.row, call.incarnation, call.head) =
                    (row.stream(), row.incarnation().into(), u32::from(*fresh));
            }
            StepKernel::Ring { row, coefs } => {
                words.extend(coefs.iter().map(|c| c.to_bits()));
                let slots = self.slots.max(1) as u64;
                (call.row, call.incarnation, call.count) =
                    (row.stream(), row.incarnation().into(), coefs.len() as u32);
                call.head = ((slots - self.time % slots) % slots) as u32;
            }
            StepKernel::Regenerate { terms } => {
                for (row, weight) in *terms {
                    words.extend([row.stream() as u32, (row.stream() >> 32) as u32, weight.to_bits(), 0]);
                }
                call.count = terms.len() as u32;
            }
        }
        // The list holds 64-bit numbers, as terms do.
        let list: Vec<u64> =
            words.chunks(2).map(|w| u64::from(w[0]) | u64::from(*w.get(1).unwrap_or(&0)) << 32).collect();
        call.list = list.as_ptr().cast();
        let tiles = (self.first + self.len - 1) / 512 - self.first / 512 + 1;
        let entry = self.module.entry;
        std::thread::scope(|scope| {
            for (first_tile, end_tile) in [(0, tiles / 2), (tiles / 2, tiles)] {
                let share = Share(Call { first_tile, end_tile, ..call });
                scope.spawn(move || {
                    let share = share;
                    // SAFETY: the gradient has `length` values, the state whole tiles, lists and keys what the step needs.
                    unsafe { entry(&share.0, element) };
                });
            }
        });
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
            self.run(step, gradients.slices::<E>().unwrap()[0].as_mut_ptr().cast(), dtype.tag());
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

fn key() -> Key {
    Key::from_bytes(std::array::from_fn(|i| (i * 37 + 11) as u8), "twin")
}

/// Runs a plan on both; the gradient lies between guards that nobody may touch. Gives the first difference.
fn compare<E: Element>(module: &Arc<Module>, plan: &Plan, shard: &Shard, zero: bool) -> Option<String> {
    const GUARD: usize = 600;
    let len = shard.num_coords() as usize;
    let mut cpu = Mechanism::cpu(plan, key(), shard.clone()).unwrap();
    let twin = |keys: &[RunKey], shard: &Shard| Ok(Twin::new(module.clone(), plan, keys, shard));
    let mut twin = Mechanism::with_backend(plan, key(), shard.clone(), twin).unwrap();
    for step in 0..plan.num_steps() {
        let mut expected: Vec<E> = gradient((len + 2 * GUARD) as u64, E::from_f32);
        if zero {
            expected[GUARD..GUARD + len].fill(E::from_f32(0.0));
        }
        let mut got = expected.clone();
        cpu.add_to(&mut expected[GUARD..GUARD + len]).unwrap();
        twin.run_step(Gradients::new(&mut [&mut got[GUARD..GUARD + len]])).unwrap();
        if let Some(at) = (0..got.len()).find(|&i| expected[i].to_bits() != got[i].to_bits()) {
            return Some(format!(
                "step {step}, coordinate {}: {:?}, {:?}",
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

/// Compares 1,250,003 coordinates × 8 steps of every kernel and gradient type.
#[test]
fn ten_million_values_of_every_kernel() {
    let Some(compiler) = compiler() else { return };
    let shard = Shard::whole(2_000_000).unwrap().within(5..1_250_008).unwrap();
    for (name, source, define, form) in modules() {
        let module = Arc::new(Module::build(&compiler, &name, source, &define, None));
        let plan = Plan::new(STEPS, form, 0.75).unwrap();
        for (element, difference) in [
            ("f32", compare::<f32>(&module, &plan, &shard, true)),
            ("bf16", compare::<bf16>(&module, &plan, &shard, false)),
            ("f16", compare::<f16>(&module, &plan, &shard, false)),
        ] {
            assert_eq!(difference, None, "{name}, {element}");
        }
        let small = Shard::whole(1 << 40).unwrap().within((1 << 36) - 700..(1 << 36) + 613).unwrap();
        for rounds in [Rounds::R8, Rounds::R20] {
            let plan = plan.clone().with_rounds(rounds).unwrap();
            assert_eq!(compare::<f32>(&module, &plan, &small, true), None, "{name}, {rounds:?}");
        }
    }
}

/// Makes every mistake that the comparison should find, on purpose: each must show.
#[test]
fn mutations_of_the_source_are_noticed() {
    let Some(compiler) = compiler() else { return };
    let mutations: [(&str, Mutation<'_>); 9] = [
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
        ("a missing bound", ("gradient.cuh", "index + j >= 0 && index + j < length", "index + j >= 0")),
        ("no tail extension", ("gauss.cuh", "if (smallest < TAIL_LIMIT)", "if (false)")),
    ];
    let (name, source, define, form) = modules().swap_remove(4);
    let plan = Plan::new(STEPS, form, 0.75).unwrap();
    let shard = Shard::whole(1_000_000).unwrap().within(5..150_008).unwrap();
    for (mistake, mutation) in mutations {
        let module = Arc::new(Module::build(&compiler, &name, source, &define, Some(mutation)));
        let difference = compare::<f32>(&module, &plan, &shard, true);
        println!("{mistake}: {difference:?}");
        assert!(difference.is_some(), "{mistake} was not noticed");
    }
    let module = Arc::new(Module::build(&compiler, &name, source, &define, None));
    assert_eq!(compare::<f32>(&module, &plan, &shard, true), None);
}

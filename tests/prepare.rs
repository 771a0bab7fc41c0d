//! Noise made ahead of its step: the same bits, each row once, and the plain state at every moment.

use corrnoise::backend::{Backend, Step, StepKernel};
use corrnoise::{
    Cpu, CpuOptions, Element, Error, Form, Gradients, Incarnations, Isa, Key, Layout, Mechanism, Plan,
    Resume, Rounds, Sampler, Sampling, Shard,
};
use corrnoise_testkit::cases::{every_form, square_root_coefs};
use corrnoise_testkit::gradients::{assert_same, gradient};
use half::{bf16, f16};
use std::path::Path;

/// More than 32 tiles, so that `prepare` does not leave the row to the step; pieces of 8192 and a ragged end.
const DIM: u64 = 40_000;

fn key() -> Key {
    Key::from_bytes([9; 32], "prepare")
}

fn options() -> CpuOptions {
    CpuOptions { threads: 2, ..CpuOptions::default() }
}

fn forms(steps: u64) -> Vec<(String, Form)> {
    let mut forms = every_form(steps);
    let long = Form::banded_toeplitz(&square_root_coefs(12)).unwrap();
    forms.push(("ring 12 restarted".into(), long.clone().with_restarts(7).unwrap()));
    forms.push(("ring 12".into(), long));
    forms
}

#[test]
fn prepared_or_not_the_bits_are_the_same() {
    let steps = 21;
    for (name, form) in forms(steps) {
        let plan = Plan::new(steps, form, 0.75).unwrap();
        let make = |options| Mechanism::cpu_with(&plan, key(), Shard::whole(DIM).unwrap(), options).unwrap();
        // When to prepare: always, never after the first, every second, in pairs, only late (a ring then grows in mid-run).
        let prepares = |pattern: &str, t: u64| match pattern {
            "always" => true,
            "first" => t == 0,
            "second" => t % 2 == 1,
            "pairs" => t % 4 < 2,
            _ => t > 9,
        };
        let (mut plain, mut expected) = (make(options()), gradient(DIM, |x| x));
        let rows: Vec<Vec<f32>> = (0..steps)
            .map(|_| {
                plain.add_to(&mut expected).unwrap();
                expected.clone()
            })
            .collect();
        for (at, pattern) in ["always", "first", "second", "pairs", "late"].into_iter().enumerate() {
            let isa = if at == 3 { Isa::Scalar } else { Isa::Auto };
            let mut noise = make(CpuOptions { isa, prepare_threads: 1 + at % 3, ..options() });
            let mut out = gradient(DIM, |x| x);
            for step in 0..steps {
                if prepares(pattern, step) {
                    noise.prepare().unwrap();
                    // Asked for twice, it is made once.
                    (step % 5 == 0).then(|| noise.prepare().unwrap());
                }
                noise.add_to(&mut out).unwrap();
                assert_same(&rows[step as usize], &out, &format!("{name}, {pattern}, step {step}"));
            }
            // A loop may end with it.
            noise.prepare().unwrap();
            assert!(matches!(noise.add_to(&mut out), Err(Error::PastEnd { .. })));
        }
    }
}

#[test]
fn shards_of_several_segments_and_narrow_types_are_prepared_too() {
    let plan = Plan::new(6, Form::blt(&[0.3, 0.1], &[0.9, 0.5]).unwrap(), 0.5).unwrap();
    let layout = Layout::new([("a", 30_000), ("b", 7), ("c", 9_001)]).unwrap();
    let run = |prepares: bool| {
        let mut noise = Mechanism::cpu_with(&plan, key(), layout.whole(), options()).unwrap();
        let mut parts: Vec<Vec<bf16>> =
            [30_000, 7, 9_001].map(|len| gradient(len, bf16::from_f32)).into_iter().collect();
        for _ in 0..6 {
            if prepares {
                noise.prepare().unwrap();
            }
            let mut slices: Vec<&mut [bf16]> = parts.iter_mut().map(|part| &mut part[..]).collect();
            noise.add_to_all(&mut slices).unwrap();
        }
        parts.concat()
    };
    assert_same(&run(false), &run(true), "segments");
}

/// A form of each kind, every number type, number of rounds and engine, prepared and not. The grid is the finest: there a last bit shows.
#[test]
fn every_type_and_number_of_rounds_is_prepared() {
    fn compare<E: Element>(steps: u64) {
        let forms = [
            ("BLT", Form::blt(&[0.3, 0.1], &[0.9, 0.5])),
            ("ring", Form::banded_toeplitz(&square_root_coefs(12))),
            ("regenerate", Form::regenerate(&[1.0, -0.5, -0.25])),
        ];
        for (name, form) in forms.map(|(name, form)| (name, form.unwrap())) {
            for rounds in [Rounds::R8, Rounds::R12, Rounds::R20] {
                let plan = Plan::new(steps, form.clone(), 0.75).unwrap().with_finest_grid().unwrap();
                let plan = plan.with_rounds(rounds).unwrap();
                let run = |isa, prepares: bool| {
                    let options = CpuOptions { isa, ..options() };
                    let shard = Shard::whole(DIM).unwrap();
                    let mut noise = Mechanism::cpu_with(&plan, key(), shard, options).unwrap();
                    let mut out = gradient(DIM, E::from_f32);
                    for _ in 0..steps {
                        prepares.then(|| noise.prepare().unwrap());
                        noise.add_to(&mut out).unwrap();
                    }
                    out
                };
                let expected = run(Isa::Scalar, false);
                for isa in [Isa::Scalar, Isa::Auto] {
                    let context = format!("{name}, {}, {rounds:?}, {isa:?}", std::any::type_name::<E>());
                    assert_same(&expected, &run(isa, true), &context);
                }
            }
        }
    }
    compare::<f32>(3);
    compare::<bf16>(3);
    compare::<f16>(3);
}

fn bytes(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap()
}

/// A checkpoint between `prepare` and the step is, byte for byte, that of a run that prepares nothing, and so is one after the step.
#[test]
fn a_checkpoint_in_between_is_the_plain_state() {
    let folder = tempfile::tempdir().unwrap();
    let steps = 14;
    for (name, form) in forms(steps) {
        let plan = Plan::new(steps, form, 0.75).unwrap();
        let make = || Mechanism::cpu_with(&plan, key(), Shard::whole(DIM).unwrap(), options()).unwrap();
        let (mut plain, mut ahead) = (make(), make());
        let file = |name: &str| folder.path().join(name);
        let mut out = vec![0.0_f32; DIM as usize];
        for step in 0..steps {
            ahead.prepare().unwrap();
            if step % 3 == 1 {
                plain.save(file("plain")).unwrap();
                ahead.save(file("ahead")).unwrap();
                assert!(bytes(&file("plain")) == bytes(&file("ahead")), "{name}, before step {step}");
            }
            plain.add_to(&mut out).unwrap();
            ahead.add_to(&mut out).unwrap();
            if step % 3 == 0 {
                plain.save(file("plain")).unwrap();
                ahead.save(file("ahead")).unwrap();
                assert!(bytes(&file("plain")) == bytes(&file("ahead")), "{name}, after step {step}");
            }
        }
    }
}

/// Whoever resumes from a checkpoint that was saved with a row prepared does not use that row, but makes one of its own.
#[test]
fn a_resumed_run_forgets_the_prepared_row() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    let plan = Plan::new(9, Form::blt(&[0.3], &[0.9]).unwrap(), 1.0).unwrap();
    let shard = || Shard::whole(DIM).unwrap();
    let mut noise = Mechanism::cpu_with(&plan, key(), shard(), options()).unwrap();
    let mut out = vec![0.0_f32; DIM as usize];
    noise.add_to(&mut out).unwrap();
    noise.prepare().unwrap();
    noise.save(&path).unwrap();
    let row = |mut noise: Mechanism| {
        let mut row = vec![0.0_f32; DIM as usize];
        noise.prepare().unwrap();
        noise.add_to(&mut row).unwrap();
        row
    };
    let resume = |mode| Mechanism::resume_cpu(&plan, key(), shard(), &[&path], mode, options()).unwrap();
    let (new, exact) = (row(resume(Resume::NewIncarnation)), row(resume(Resume::Exact)));
    let same = new.iter().zip(&exact).filter(|(a, b)| a == b).count();
    // Independent values agree by chance with probability Γ/(2σ√π), one of 227 on this plan's grid of 2⁻⁶ of the noise.
    assert!(same < DIM as usize / 100, "{same} values of a new incarnation are those of the old one");
    assert_same(&exact, &row(noise), "the row that was prepared");
    // A state that is loaded into a mechanism with a row prepared takes that row away, too.
    let mut noise = resume(Resume::Exact);
    noise.prepare().unwrap();
    noise.add_to(&mut out).unwrap();
    noise.prepare().unwrap();
    let checkpoint = corrnoise::Checkpoint::open(&path).unwrap();
    noise.reload_cpu(vec![checkpoint], Resume::NewIncarnation, options()).unwrap();
    assert_eq!(noise.next_step(), 1);
    let other = row(noise);
    assert!(other.iter().zip(&exact).filter(|(a, b)| a == b).count() < DIM as usize / 100);
}

/// What a step refuses leaves the prepared row where it is: a batch of another step, none at all, a wrong length.
#[test]
fn a_refused_step_leaves_the_prepared_row() {
    let sampling = Sampling::Poisson { dataset_size: 100, sampling_prob: 0.5 };
    let plan =
        Plan::new(5, Form::blt(&[0.3], &[0.9]).unwrap(), 1.0).unwrap().with_sampling(sampling).unwrap();
    let make = || Mechanism::cpu_with(&plan, key(), Shard::whole(DIM).unwrap(), options()).unwrap();
    let sampler = Sampler::new(&plan, &key()).unwrap();
    let (mut plain, mut noise) = (make(), make());
    for step in 0..5 {
        let (mut expected, mut out) = (vec![1.0_f32; DIM as usize], vec![1.0_f32; DIM as usize]);
        plain.for_batch(&sampler.batch(step).unwrap()).unwrap().add_to(&mut expected).unwrap();
        noise.prepare().unwrap();
        assert!(matches!(noise.add_to(&mut out), Err(Error::NoBatch { .. })));
        assert!(noise.for_batch(&sampler.batch((step + 1) % 5).unwrap()).is_err());
        let batch = sampler.batch(step).unwrap();
        assert!(noise.for_batch(&batch).unwrap().add_to(&mut [0.0_f32; 3]).is_err());
        assert!(out.iter().all(|value| *value == 1.0), "a refusal changes nothing");
        noise.for_batch(&batch).unwrap().add_to(&mut out).unwrap();
        assert_same(&expected, &out, &format!("step {step}"));
    }
}

const KILLED: &str = "CORRNOISE_TEST_PREPARE_FOLDER";

fn at(folder: &Path) -> (Plan, Key) {
    let path = folder.join("noise.key");
    let key = if path.exists() { Key::from_file(path, "").unwrap() } else { Key::create_file(path).unwrap() };
    (Plan::new(9, Form::blt(&[0.3], &[0.9]).unwrap(), 1.0).unwrap(), key)
}

/// The body of a child process: three steps, a checkpoint, a row prepared, and the process dies.
#[test]
fn child() {
    let Some(folder) = std::env::var_os(KILLED) else { return };
    let folder = Path::new(&folder);
    let (plan, key) = at(folder);
    let mut noise = Mechanism::cpu_with(&plan, key, Shard::whole(DIM).unwrap(), options()).unwrap();
    let mut out = vec![0.0_f32; DIM as usize];
    (0..3).for_each(|_| noise.add_to(&mut out).unwrap());
    noise.save(folder.join("state")).unwrap();
    noise.prepare().unwrap();
    std::process::abort();
}

/// A row that was prepared and never added was never released: the ledger does not count it, and the run goes on exactly.
#[test]
fn a_kill_after_prepare_released_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child"])
        .env(KILLED, folder.path())
        .output()
        .unwrap();
    assert!(!child.status.success());
    let resume = || {
        let (plan, key) = at(folder.path());
        let files = [folder.path().join("state")];
        Mechanism::resume_cpu(&plan, key, Shard::whole(DIM).unwrap(), &files, Resume::Exact, options())
    };
    let mut noise = resume().unwrap();
    assert_eq!(noise.next_step(), 3);
    noise.prepare().unwrap();
    noise.add_to(&mut vec![0.0_f32; DIM as usize]).unwrap();
    drop(noise);
    // Now the row is out, and the same checkpoint cannot be resumed exactly again.
    assert!(matches!(resume(), Err(Error::Repeated(_))));
}

#[cfg(unix)]
#[test]
fn a_forked_child_does_not_use_the_prepared_row() {
    let plan = Plan::new(9, Form::blt(&[0.3], &[0.9]).unwrap(), 1.0).unwrap();
    let mut noise = Mechanism::cpu_with(&plan, key(), Shard::whole(DIM).unwrap(), options()).unwrap();
    noise.prepare().unwrap();
    // SAFETY: the child only asks the mechanism, and ends without destructors.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = matches!(noise.add_to(&mut vec![0.0_f32; DIM as usize]), Err(Error::Forked))
            && matches!(noise.prepare(), Err(Error::Forked));
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(i32::from(!refused)) };
    }
    let mut status = 0;
    // SAFETY: waits for the process's own child.
    unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(status, 0);
    noise.add_to(&mut vec![0.0_f32; DIM as usize]).unwrap();
}

/// Several readers may wait for a row in the background, and all of them go on.
#[test]
fn readers_at_once_do_not_wait_for_ever() {
    let plan = Plan::new(50, Form::blt(&[0.3], &[0.9]).unwrap(), 1.0).unwrap();
    let keys = [key().run_key(plan.fingerprint())];
    let mut cpu = Cpu::new(&plan, &keys, &Shard::whole(1_000_000).unwrap(), options()).unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for step in 0..20 {
            let mut terms = Vec::new();
            let step = Step::lower(&plan, step, &Incarnations::first(), &mut terms).unwrap();
            cpu.prepare(&step).unwrap();
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| cpu.read_state(0, 0, &mut [0; 64]).unwrap());
                }
            });
            cpu.step(&step, Gradients::new(&mut [&mut vec![0.0_f32; 1_000_000][..]])).unwrap();
        }
        sender.send(()).unwrap();
    });
    receiver.recv_timeout(std::time::Duration::from_secs(60)).expect("a reader hung");
}

/// A backend that is asked to prepare a step keeps nothing of that step: its memory may be gone when the threads work.
#[test]
fn the_step_may_go_after_prepare() {
    let (plan, shard) =
        (Plan::new(9, Form::banded_toeplitz(&square_root_coefs(12)).unwrap(), 1.0).unwrap(), DIM * 20);
    let keys = [key().run_key(plan.fingerprint())];
    let run = |prepares: bool| {
        let mut cpu = Cpu::new(&plan, &keys, &Shard::whole(shard).unwrap(), options()).unwrap();
        let mut out = vec![0.0_f32; shard as usize];
        for number in 0..9 {
            let mut terms = Vec::new();
            let step = Step::lower(&plan, number, &Incarnations::first(), &mut terms).unwrap();
            let StepKernel::Ring { row, coefs } = &step.kernel else { unreachable!() };
            if prepares {
                let copy = coefs.to_vec();
                let kernel = StepKernel::Ring { row: *row, coefs: &copy };
                cpu.prepare(&Step { number, add: step.add, dither: step.dither, kernel }).unwrap();
                drop(copy);
                let _other = vec![7.0_f32; coefs.len()];
            }
            cpu.step(&step, Gradients::new(&mut [&mut out[..]])).unwrap();
        }
        out
    };
    assert_same(&run(false), &run(true), "coefficients that are gone");
}

/// A row that was prepared from another state is not used: whoever writes a state takes it away.
#[test]
fn a_state_that_is_written_takes_the_row_away() {
    let plan = Plan::new(9, Form::blt(&[0.3], &[0.9]).unwrap(), 1.0).unwrap();
    let keys = [key().run_key(plan.fingerprint())];
    let run = |prepares: bool| {
        let mut cpu = Cpu::new(&plan, &keys, &Shard::whole(DIM).unwrap(), options()).unwrap();
        let mut out = vec![0.0_f32; DIM as usize];
        for number in 0..3 {
            let mut terms = Vec::new();
            let step = Step::lower(&plan, number, &Incarnations::first(), &mut terms).unwrap();
            if number == 2 {
                prepares.then(|| cpu.prepare(&step).unwrap());
                // Reading waits until the row is made.
                cpu.read_state(0, 0, &mut [0; 4]).unwrap();
                cpu.write_state(0, 0, &2.0_f32.to_le_bytes().repeat(DIM as usize)).unwrap();
            }
            cpu.step(&step, Gradients::new(&mut [&mut out[..]])).unwrap();
        }
        out
    };
    assert_same(&run(false), &run(true), "a state that was written");
}

/// Everything that may happen to a mechanism, in random order: each release and each state is, byte for byte, that of a run that prepares
/// nothing.
#[test]
fn any_order_of_calls_gives_the_plain_run() {
    let steps = 30;
    let shard = || Shard::whole(DIM).unwrap();
    for (index, (name, form)) in forms(steps).into_iter().enumerate() {
        let mut seed = index as u64 + 1;
        let mut below = |limit: u64| {
            seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (seed >> 33) % limit
        };
        let plan = Plan::new(steps, form, 0.75).unwrap();
        let make = |options| Mechanism::cpu_with(&plan, key(), shard(), options).unwrap();
        let (mut plain, mut noise) = (make(options()), make(options()));
        let mut log = String::new();
        while plain.next_step() < steps {
            let call = below(8);
            log += &call.to_string();
            match call {
                0..=2 => noise.prepare().unwrap(),
                3 => assert!(noise.state().unwrap() == plain.state().unwrap(), "{name}: {log}"),
                4 => {
                    let checkpoint = corrnoise::Checkpoint::from_bytes(noise.state().unwrap()).unwrap();
                    let threads = CpuOptions { prepare_threads: 1 + below(3) as usize, ..options() };
                    let compact = CpuOptions { compact: below(2) == 0, ..threads };
                    let backend = |keys: &[_], shard: &_| Cpu::new(&plan, keys, shard, compact);
                    noise = Mechanism::resume_from(
                        &plan,
                        key(),
                        shard(),
                        vec![checkpoint],
                        Resume::Exact,
                        backend,
                    )
                    .unwrap();
                }
                5 => {
                    assert!(noise.add_to(&mut [0.0_f32; 3]).is_err());
                }
                _ => {
                    let (mut expected, mut out) = (gradient(DIM, |x| x), gradient(DIM, |x| x));
                    plain.add_to(&mut expected).unwrap();
                    noise.add_to(&mut out).unwrap();
                    assert_same(&expected, &out, &format!("{name}: {log}"));
                }
            }
        }
    }
}

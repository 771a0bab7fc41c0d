//! Streams noise into a gradient: throughput of each form, and checks that the noise is what it should be.
//!
//! Run it with `cargo run --release --example stream [-- PARAMETERS]`.

use corrnoise::{CpuOptions, Form, Isa, Key, Mechanism, Plan, Result, Resume, Shard};
use corrnoise_testkit::cases;
use corrnoise_testkit::traffic::Traffic;
use std::time::Instant;

fn main() -> std::process::ExitCode {
    let argument = std::env::args().nth(1);
    let dim = match argument.as_deref().map_or(Ok(10_000_000), |text| text.replace('_', "").parse()) {
        Ok(dim) if dim > 0 => dim,
        _ => {
            eprintln!(
                "{:?} is no number of parameters: expected a whole number from 1 on",
                argument.unwrap_or_default()
            );
            return 2.into();
        }
    };
    match throughput(dim).and_then(|()| checks()) {
        Ok(true) => 0.into(),
        Ok(false) => 1.into(),
        Err(error) => {
            eprintln!("{error}");
            1.into()
        }
    }
}

/// The median seconds of a few runs.
fn median(mut run: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut times = Vec::new();
    for _ in 0..7 {
        let start = Instant::now();
        run()?;
        times.push(start.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

fn throughput(dim: u64) -> Result<()> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    println!("{dim} parameters, f32, ChaCha12, {threads} threads\n");
    println!("{:<14} {:>14} {:>16} {:>12}", "form", "state (B/par.)", "parameters/s", "of memory");
    let mut gradient = vec![0.0_f32; dim as usize];
    for name in ["independent", "blt4", "ring16", "regenerate4"] {
        let form = cases::form(name, 100).expect("known names")?;
        let mut noise =
            Mechanism::cpu(&Plan::new(100, form.clone(), 0.01)?, Key::from_os()?, Shard::whole(dim)?)?;
        for _ in 0..=form.num_slots() {
            noise.add_to(&mut gradient)?;
        }
        let seconds = median(|| noise.add_to(&mut gradient))?;
        let mut traffic = Traffic::new(&form, dim as usize);
        traffic.step(threads);
        let bound = median(|| {
            traffic.step(threads);
            Ok(())
        })?;
        let (rate, share) = (dim as f64 / seconds, 100.0 * bound / seconds);
        println!("{name:<14} {:>14} {rate:>16.3e} {share:>10.0} %", form.state_bytes_per_param());
    }
    println!("\nof memory: the time of a plain pass over gradient and state, as a share of the step's time;");
    println!("a ring makes several rows of each pass over its history, and may exceed it\n");
    Ok(())
}

/// The noise of `steps` steps, all added to one zero gradient.
fn total(mechanism: &mut Mechanism, steps: u64) -> Result<Vec<f32>> {
    let mut sum = vec![0.0; mechanism.shard().num_coords() as usize];
    for _ in 0..steps {
        mechanism.add_to(&mut sum)?;
    }
    Ok(sum)
}

fn checks() -> Result<bool> {
    let dim = 1_000_003;
    let plan = Plan::new(8, Form::blt(&[0.29, 0.13, 0.06, 0.015], &[0.22, 0.71, 0.944, 0.9957])?, 2.0)?;
    let make = |isa, threads, shard| {
        Mechanism::cpu_with(
            &plan,
            Key::from_bytes([7; 32], "stream"),
            shard,
            CpuOptions { threads, isa, ..CpuOptions::default() },
        )
    };
    let space = Shard::whole(dim)?;
    let expected = total(&mut make(Isa::Auto, 0, space.clone())?, 8)?;

    let scalar = total(&mut make(Isa::Scalar, 1, space.clone())?, 8)? == expected;
    let low = total(&mut make(Isa::Auto, 1, space.within(0..333_333)?)?, 8)?;
    let high = total(&mut make(Isa::Auto, 1, space.within(333_333..dim)?)?, 8)?;
    let sharded = [low, high].concat() == expected;

    let mut first = Mechanism::cpu(&Plan::new(8, Form::independent(), 2.0)?, Key::from_os()?, space)?;
    let row = total(&mut first, 1)?;
    let variance = row.iter().map(|z| f64::from(*z).powi(2)).sum::<f64>() / dim as f64;
    // The variance of 10⁶ squared normals has a standard error of 0.14%; five of them.
    let scaled = (variance / 4.0 - 1.0).abs() < 0.007;

    let resumed = resumes(&mut first)?;
    let all = [
        ("scalar and SIMD give the same bits", scalar),
        ("two shards give the bits of one", sharded),
        ("the variance is that of the plan", scaled),
        ("a resumed run never repeats a row", resumed),
    ];
    for (name, passed) in all {
        println!("{} {name}", if passed { "ok  " } else { "FAIL" });
    }
    Ok(all.iter().all(|(_, passed)| *passed))
}

/// Saves, makes another step, and resumes: the lost step and the resumed one must differ.
fn resumes(noise: &mut Mechanism) -> Result<bool> {
    let folder = std::env::temp_dir().join(format!("corrnoise-stream-{}", std::process::id()));
    let fail = |source| corrnoise::Error::Io { action: "create", path: folder.clone(), source };
    std::fs::create_dir_all(&folder).map_err(fail)?;
    let file = folder.join("noise.safetensors");
    noise.save_with(&file, corrnoise::SaveOptions { include_key: true })?;
    let lost = total(noise, 1)?;
    let key = corrnoise::Checkpoint::open(&file)?.key()?.expect("it was stored");
    let (plan, shard) = (noise.plan().clone(), noise.shard().clone());
    let mut resumed =
        Mechanism::resume_cpu(&plan, key, shard, &[&file], Resume::NewIncarnation, CpuOptions::default())?;
    let repeated = total(&mut resumed, 1)?.iter().zip(&lost).filter(|(a, b)| a == b).count();
    std::fs::remove_dir_all(&folder).map_err(fail)?;
    // Two independent rows agree in one of 227 coordinates by chance, on a grid of 2⁻⁶ of the noise, and never in many.
    Ok(repeated < lost.len() / 100)
}

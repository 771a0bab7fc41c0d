//! The same bits from every engine: scalar and SIMD, one thread and many, shards and the whole, before and after a resume, CUDA.

use super::Finding;
use crate::failure::Result;
use corrnoise::planner::strategy::series;
use corrnoise::{
    AnyMechanism, Checkpoint, CpuOptions, Device, Dtype, Element, Form, Isa, Key, Place, Plan, Resume, Shard,
    with_element,
};

const STEPS: u64 = 20;

/// One form of each kind, of sizes that differ.
fn plans() -> Result<Vec<(&'static str, Plan)>> {
    let free: Vec<Vec<f64>> = (0..STEPS as usize)
        .map(|t| (0..=t.min(3)).map(|age| 1.5 / (1.0 + age as f64 + 0.1 * t as f64)).collect())
        .collect();
    let forms = [
        ("independent", Form::independent()),
        ("BLT", Form::blt(&[0.29, 0.13, 0.06, 0.015], &[0.22, 0.71, 0.944, 0.9957])?),
        ("BLT restarted", Form::blt(&[0.29, 0.13], &[0.22, 0.71])?.with_restarts(7)?),
        ("ring", Form::banded_toeplitz(&series::binomial(-0.5, 4))?),
        ("ring ahead", Form::banded_toeplitz(&series::binomial(-0.5, 16))?),
        ("ring free rows", Form::banded(&free)?),
        ("regenerate", Form::regenerate(&series::binomial(0.5, 5))?),
    ];
    // Where every digit of the noise shows.
    let plan = |form| Plan::new(STEPS, form, 0.75)?.with_finest_grid();
    forms.into_iter().map(|(name, form)| Ok((name, plan(form)?))).collect()
}

fn key() -> Key {
    Key::from_bytes(*b"corrnoise verify: a public key!!", "engines")
}

/// Not a multiple of anything.
fn coords(quick: bool) -> u64 {
    if quick { 20_011 } else { 200_017 }
}

/// A gradient of which no two values are alike, after so many steps of noise.
fn run<E: Element>(mechanism: &mut AnyMechanism, steps: u64) -> Result<Vec<E>> {
    let first = mechanism.shard().segments()[0].start;
    let value = |i: u64| E::from_f32(((first + i) * 7919 % 10_007) as f32 * 1e-3 - 5.0);
    let mut gradient: Vec<E> = (0..mechanism.shard().num_coords()).map(value).collect();
    for _ in 0..steps {
        mechanism.add_to(&mut gradient)?;
    }
    Ok(gradient)
}

fn mechanism(plan: &Plan, shard: Shard, isa: Isa, threads: usize) -> Result<AnyMechanism> {
    let place = Place::Cpu(CpuOptions { threads, isa, ..CpuOptions::default() });
    Ok(AnyMechanism::new(plan, key(), shard, &place)?)
}

/// The bits of a gradient after so many steps.
fn bits<E: Element>(mechanism: &mut AnyMechanism, steps: u64) -> Result<Vec<u32>> {
    Ok(run::<E>(mechanism, steps)?.into_iter().map(E::to_bits).collect())
}

/// Everything that is compared, in words.
fn compared() -> Result<String> {
    Ok(format!("{} forms, {}, {STEPS} steps", plans()?.len(), Dtype::names("and")))
}

/// Compares two engines on every form and gradient type.
fn compare(dim: u64, left: (Isa, usize), right: (Isa, usize)) -> Result<Option<String>> {
    for (name, plan) in plans()? {
        let make = |(isa, threads)| mechanism(&plan, Shard::whole(dim)?, isa, threads);
        for dtype in Dtype::ALL {
            let of = |engine| with_element!(dtype, E => bits::<E>(&mut make(engine)?, STEPS));
            if of(left)? != of(right)? {
                return Ok(Some(format!("{name}, {dtype} gradients differ")));
            }
        }
    }
    Ok(None)
}

fn finding(difference: Option<String>, agreed: String) -> Finding {
    match difference {
        Some(difference) => Finding::new(false, difference),
        None => Finding::new(true, agreed),
    }
}

pub fn scalar_and_simd(quick: bool) -> Result<Finding> {
    let fastest = mechanism(&plans()?[0].1, Shard::whole(1)?, Isa::Auto, 1)?.describe();
    if fastest.starts_with("scalar") {
        return Ok(Finding::skipped("this machine has no vector path: only the scalar engine runs"));
    }
    // Plain Rust is some 30 times as slow.
    let difference = compare(coords(quick) / 8, (Isa::Scalar, 0), (Isa::Auto, 0))?;
    let fastest = fastest.split(',').next().unwrap_or_default();
    Ok(finding(difference, format!("{}: scalar and {fastest}", compared()?)))
}

pub fn threads(quick: bool) -> Result<Finding> {
    // More threads than cores, too: which thread takes which piece must not matter.
    let many = std::thread::available_parallelism().map_or(1, usize::from).max(2) + 1;
    let difference = compare(coords(quick), (Isa::Auto, 1), (Isa::Auto, many))?;
    Ok(finding(difference, format!("{}: 1 and {many} threads", compared()?)))
}

pub fn shards(quick: bool) -> Result<Finding> {
    let space = Shard::whole(coords(quick))?;
    // Neither at a tile's edge.
    let cuts = [0, space.dim() / 3 + 1, space.dim() / 2 + 17, space.dim()];
    let mut difference = None;
    for (name, plan) in plans()? {
        let whole = bits::<f32>(&mut mechanism(&plan, space.clone(), Isa::Auto, 0)?, STEPS)?;
        let mut parts = Vec::new();
        for cut in cuts.windows(2) {
            let mut part = mechanism(&plan, space.within(cut[0]..cut[1])?, Isa::Auto, 1)?;
            parts.extend(bits::<f32>(&mut part, STEPS)?);
        }
        if whole != parts {
            difference.get_or_insert(format!("{name} differs between shards and the whole"));
        }
    }
    Ok(finding(difference, format!("{} forms, 3 shards, {STEPS} steps", plans()?.len())))
}

pub fn resume(quick: bool) -> Result<Finding> {
    let dim = coords(quick) / 4;
    for (name, plan) in plans()? {
        let half = STEPS / 2 + 1;
        let mut first = mechanism(&plan, Shard::whole(dim)?, Isa::Auto, 0)?;
        run::<f32>(&mut first, half)?;
        let state = first.state()?;
        let expected = run::<f32>(&mut first, STEPS - half)?;
        let again = |how| {
            let saved = vec![Checkpoint::from_bytes(state.clone())?];
            let (shard, place) = (Shard::whole(dim)?, Place::default());
            run::<f32>(&mut AnyMechanism::resume(&plan, key(), shard, saved, how, &place)?, STEPS - half)
        };
        if again(Resume::Exact)? != expected {
            return Ok(Finding::new(false, format!("{name}: an exact resume goes on with other bits")));
        }
        // Two independent sums agree in few coordinates by chance: f32 values of this size are some 10⁶ apart.
        let repeated = again(Resume::NewIncarnation)?.iter().zip(&expected).filter(|(a, b)| a == b).count();
        if repeated as u64 > 10 + dim / 1000 {
            return Ok(Finding::new(
                false,
                format!("{name}: a new incarnation repeats {repeated} of {dim} values"),
            ));
        }
    }
    Ok(Finding::new(
        true,
        format!("{} forms: exactly, and as a new incarnation that repeats nothing", plans()?.len()),
    ))
}

pub fn cuda(quick: bool) -> Result<Finding> {
    // The library may have the engine because another package of the build asked for it; this program did not.
    if !cfg!(feature = "cuda") {
        return Ok(Finding::skipped("this corrnoise was built without the CUDA engine"));
    }
    let place = match Place::open(Device::Cuda(0), CpuOptions::default()) {
        Ok(place) => place,
        Err(reason) => return Ok(Finding::skipped(reason.to_string())),
    };
    let dim = coords(quick);
    let mut device = String::new();
    for (name, plan) in plans()? {
        let expected = bits::<f32>(&mut mechanism(&plan, Shard::whole(dim)?, Isa::Auto, 0)?, STEPS)?;
        let mut noise = AnyMechanism::new(&plan, key(), Shard::whole(dim)?, &place)?;
        if bits::<f32>(&mut noise, STEPS)? != expected {
            return Ok(Finding::new(false, format!("{name} differs between CUDA and CPU")));
        }
        device = noise.describe();
    }
    Ok(Finding::new(true, format!("{} forms, f32, {STEPS} steps: {device} and CPU", plans()?.len())))
}

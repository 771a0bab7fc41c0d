//! Noise of every form, timed.

use super::traffic::Traffic;
use crate::failure::Result;
use crate::progress::Progress;
use corrnoise::planner::{Factorization, Strategy, strategy::series};
use corrnoise::{CpuOptions, Form, Key, Mechanism, Plan, Shard};
use serde::Serialize;
use std::time::Instant;

/// Gradient and state together: larger than the last cache of most machines.
const WORKING_SET: usize = 256 << 20;
const QUICK_WORKING_SET: usize = 64 << 20;

/// What a form is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Blt,
    Ring,
    Regenerate,
}

/// A form's throughput.
#[derive(Serialize)]
pub struct Measured {
    pub name: String,
    pub kind: Kind,
    /// Buffers, bands or rows.
    pub bands: usize,
    pub state_bytes_per_param: u64,
    /// Bytes that a step reads and writes at least.
    pub bytes_per_param: u64,
    pub measured_params: u64,
    pub params_per_second: f64,
    pub gb_per_second: f64,
    /// The time of a plain read-modify-write of the same bytes over the time of the step.
    pub share_of_bandwidth: f64,
}

/// The forms that are measured, by name.
pub fn forms() -> Result<Vec<(String, Kind, usize, Form)>> {
    let ring = |bands: usize| -> Result<_> {
        let form = Factorization::new(Strategy::banded_square_root(bands)?, bands)?.form()?;
        Ok((format!("ring {bands}"), Kind::Ring, bands, form))
    };
    let regenerate = |rows: usize| -> Result<_> {
        Ok((
            format!("regenerate {rows}"),
            Kind::Regenerate,
            rows,
            Form::regenerate(&series::binomial(0.5, rows))?,
        ))
    };
    // Decays and scales of the size that the optimiser gives for thousands of steps.
    let blt = Form::blt(&[0.29, 0.13, 0.06, 0.015], &[0.22, 0.71, 0.944, 0.9957])?;
    Ok(vec![
        ("independent".into(), Kind::Blt, 0, Form::independent()),
        ("BLT 4".into(), Kind::Blt, 4, blt),
        ring(16)?,
        ring(64)?,
        ring(super::REMARK_BANDS)?,
        regenerate(4)?,
        regenerate(64)?,
    ])
}

/// How many parameters a form is measured on.
pub fn size(form: &Form, rows: usize, quick: bool) -> u64 {
    let bytes = if quick { QUICK_WORKING_SET } else { WORKING_SET };
    // A row that is made again costs about as much as 5 values read; so every form takes about the same time.
    let values = 1 + form.num_slots() + if form.num_slots() == 0 { 5 * rows } else { 0 };
    (bytes / 4 / values) as u64
}

/// Measures every form on so many threads, with an engine of these options.
pub fn measure(steps: usize, quick: bool, threads: usize, options: CpuOptions) -> Result<Vec<Measured>> {
    let forms = forms()?;
    let mut progress = Progress::new(forms.len() as u64, "noise of every form");
    let mut list = Vec::new();
    for (i, (name, kind, bands, form)) in forms.into_iter().enumerate() {
        let params = size(&form, if kind == Kind::Regenerate { bands } else { 1 }, quick);
        let seconds = noise_seconds(&form, bands, params, steps, options)?;
        // As large for every form: what fits into a cache says nothing about memory.
        let moved = size(&form, 0, quick);
        let mut traffic = Traffic::new(&form, moved as usize);
        traffic.step(threads);
        let bound = median(steps, || {
            traffic.step(threads);
            Ok(())
        })?;
        let (bound, bytes_per_param) = (bound / moved as f64, traffic.bytes() / moved);
        list.push(Measured {
            name,
            kind,
            bands,
            state_bytes_per_param: form.state_bytes_per_param(),
            bytes_per_param,
            measured_params: params,
            params_per_second: params as f64 / seconds,
            gb_per_second: bytes_per_param as f64 * params as f64 / seconds / 1e9,
            share_of_bandwidth: bound / (seconds / params as f64),
        });
        progress.set(i as u64 + 1);
    }
    Ok(list)
}

/// Steps of a plan after those that are timed; more than any engine makes ahead.
const BEYOND: usize = 64;

fn noise_seconds(form: &Form, bands: usize, params: u64, steps: usize, options: CpuOptions) -> Result<f64> {
    // A step has all its rows only after as many as there are bands.
    let warm_up = bands + 2;
    // A ring makes rows ahead of time, but none past the end of its plan: the timed steps must not be the last ones.
    let plan = Plan::new((warm_up + steps + BEYOND) as u64, form.clone(), 0.01)?;
    let mut noise = Mechanism::cpu_with(&plan, Key::from_os()?, Shard::whole(params)?, options)?;
    let mut gradient = vec![0.0_f32; params as usize];
    for _ in 0..warm_up {
        noise.add_to(&mut gradient)?;
    }
    median(steps, || Ok(noise.add_to(&mut gradient)?))
}

/// Median seconds of some runs.
pub fn median(runs: usize, mut run: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut times = Vec::with_capacity(runs);
    for _ in 0..runs {
        let start = Instant::now();
        run()?;
        times.push(start.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

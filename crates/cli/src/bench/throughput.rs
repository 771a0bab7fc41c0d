//! Noise of every form, timed.

use super::traffic::Traffic;
use super::ways::Way;
use crate::failure::Result;
use crate::progress::Progress;
use corrnoise::backend::Backend;
use corrnoise::planner::{Execution, Factorization, Moved, Strategy, strategy::series};
use corrnoise::{CpuOptions, Dtype, Form, Key, Mechanism, Plan, Shard};
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

/// How fast the noise of a form was made.
#[derive(Serialize)]
pub struct Measured {
    pub name: String,
    pub kind: Kind,
    /// Buffers, bands or rows.
    pub bands: usize,
    pub state_bytes_per_param: u64,
    /// Bytes that a step of the engine reads and writes, on average.
    pub bytes_per_param: f64,
    /// Rows that the engine makes in one pass.
    pub rows_ahead: usize,
    pub measured_params: u64,
    pub params_per_second: f64,
    /// The same form in one fused pass per step; nothing where that is what was measured, or where the engine has no choice.
    pub fused_params_per_second: Option<f64>,
    pub gb_per_second: f64,
    /// Bytes per second of the step over the memory's bandwidth ([`bandwidth`]).
    pub share_of_bandwidth: f64,
    /// The same form after `prepare`; nothing where the engine has none.
    pub prepare: Option<Prepare>,
    #[serde(skip)]
    pub form: Form,
}

impl Measured {
    /// Parameters per second of a step that is run in this way, if it was measured.
    pub fn measured(&self, way: Way) -> Option<f64> {
        let own = self.params_per_second;
        match way {
            Way::Fused => self.fused_params_per_second.or_else(|| (self.rows_ahead == 1).then_some(own)),
            Way::Ahead => (self.rows_ahead > 1).then_some(own),
            Way::Prepared => self.prepare.map(|prepare| prepare.step_params_per_second),
        }
    }
}

/// How fast the noise of a form was made in the background, and added by a step that found it there.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Prepare {
    /// Bytes that the step moves.
    pub critical_bytes_per_param: f64,
    /// Bytes that `prepare` moves.
    pub background_bytes_per_param: f64,
    /// The step alone, after its row was made.
    pub step_params_per_second: f64,
    /// `prepare` alone, until its row is made; on a GPU, what it adds to a step with nothing beside it.
    pub prepare_params_per_second: f64,
}

/// Sets every form's share of the memory's bandwidth, and returns that in bytes per second: the fastest rate of the run, whether a
/// plain pass reached it or a step. A neighbour that slows the plain passes down does not make a step exceed it.
pub fn bandwidth(forms: &mut [Measured], plain: f64) -> f64 {
    let bandwidth = forms.iter().map(|form| 1e9 * form.gb_per_second).fold(plain, f64::max);
    forms.iter_mut().for_each(|form| form.share_of_bandwidth = 1e9 * form.gb_per_second / bandwidth);
    bandwidth
}

/// Bytes that a step of the CPU engine moves per parameter, on average over its steps.
///
/// A ring that makes rows ahead of time passes through its history once for all of them. Counted row by row, such a ring would seem to
/// exceed the memory's bandwidth.
pub fn moved(form: &Form, prepared: bool) -> Moved {
    let rows_ahead = Execution::rows_ahead_on_cpu(form);
    Moved::of(form, Execution { gradient: Dtype::F32, rows_ahead, prepared })
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

/// Measures every form on so many threads, with an engine of these options; and the bandwidth of memory in bytes per second.
pub fn measure(
    steps: usize,
    quick: bool,
    threads: usize,
    options: CpuOptions,
) -> Result<(Vec<Measured>, f64)> {
    let forms = forms()?;
    let mut progress = Progress::new(forms.len() as u64, "noise of every form");
    let (mut list, mut plain) = (Vec::new(), 0.0_f64);
    for (i, (name, kind, bands, form)) in forms.into_iter().enumerate() {
        let params = size(&form, if kind == Kind::Regenerate { bands } else { 1 }, quick);
        let seconds = noise_seconds(&form, bands, params, steps, options)?;
        let (prepare_seconds, step_seconds) = prepare_seconds(&form, bands, params, steps, options)?;
        let after = moved(&form, true);
        let prepare = Prepare {
            critical_bytes_per_param: after.critical,
            background_bytes_per_param: after.background,
            step_params_per_second: params as f64 / step_seconds,
            prepare_params_per_second: params as f64 / prepare_seconds,
        };
        // As large for every form: what fits into a cache says nothing about memory.
        let dim = size(&form, 0, quick);
        let mut traffic = Traffic::new(&form, dim as usize);
        traffic.step(threads);
        for _ in 0..steps {
            plain = plain.max(traffic.bytes() as f64 / timed(|| traffic.step(threads)));
        }
        let (bytes_per_param, params_per_second) = (moved(&form, false).total(), params as f64 / seconds);
        list.push(Measured {
            name,
            kind,
            bands,
            state_bytes_per_param: form.state_bytes_per_param(),
            bytes_per_param,
            rows_ahead: Execution::rows_ahead_on_cpu(&form),
            measured_params: params,
            params_per_second,
            fused_params_per_second: None,
            gb_per_second: bytes_per_param * params_per_second / 1e9,
            share_of_bandwidth: 0.0,
            prepare: Some(prepare),
            form,
        });
        progress.set(i as u64 + 1);
    }
    let bandwidth = bandwidth(&mut list, plain);
    Ok((list, bandwidth))
}

/// Steps of a plan after those that are timed; more than any engine makes ahead.
const BEYOND: usize = 64;
/// Prepared steps that are not timed.
const UNTIMED: usize = 9;

/// A mechanism whose steps have all their rows, and its gradient.
fn warm(
    form: &Form,
    bands: usize,
    params: u64,
    steps: usize,
    options: CpuOptions,
) -> Result<(Mechanism, Vec<f32>)> {
    // A step has all its rows only after as many as there are bands.
    let warm_up = bands + 2;
    // A ring makes rows ahead of time, but none past the end of its plan: the timed steps must not be the last ones.
    let plan = Plan::new((warm_up + steps + BEYOND) as u64, form.clone(), 0.01)?;
    let mut noise = Mechanism::cpu_with(&plan, Key::from_os()?, Shard::whole(params)?, options)?;
    let mut gradient = vec![0.0_f32; params as usize];
    for _ in 0..warm_up {
        noise.add_to(&mut gradient)?;
    }
    Ok((noise, gradient))
}

fn noise_seconds(form: &Form, bands: usize, params: u64, steps: usize, options: CpuOptions) -> Result<f64> {
    let (mut noise, mut gradient) = warm(form, bands, params, steps, options)?;
    median(steps, || Ok(noise.add_to(&mut gradient)?))
}

/// Median seconds of `prepare` until its row is made, and of the step that then adds it.
fn prepare_seconds(
    form: &Form,
    bands: usize,
    params: u64,
    steps: usize,
    options: CpuOptions,
) -> Result<(f64, f64)> {
    let (mut noise, mut gradient) = warm(form, bands, params, steps, options)?;
    let mut both = [Vec::with_capacity(steps), Vec::with_capacity(steps)];
    // The first one allocates and starts its threads; a ring's then catches up with the rows that the larger state lost.
    for turn in 0..steps + UNTIMED {
        let start = Instant::now();
        noise.prepare()?;
        // To read state, even none of it, is to wait for the threads in the background.
        noise.backend().read_state(0, 0, &mut [])?;
        let made = start.elapsed().as_secs_f64();
        let start = Instant::now();
        noise.add_to(&mut gradient)?;
        if turn >= UNTIMED {
            both[0].push(made);
            both[1].push(start.elapsed().as_secs_f64());
        }
    }
    Ok((median_of(&mut both[0]), median_of(&mut both[1])))
}

/// Median seconds of some runs.
pub fn median(runs: usize, mut run: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut times = Vec::with_capacity(runs);
    for _ in 0..runs {
        let start = Instant::now();
        run()?;
        times.push(start.elapsed().as_secs_f64());
    }
    Ok(median_of(&mut times))
}

/// The median of some seconds, which are sorted for it.
pub fn median_of(seconds: &mut [f64]) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds.get(seconds.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Seconds that one call takes.
fn timed(run: impl FnOnce()) -> f64 {
    let start = Instant::now();
    run();
    start.elapsed().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_that_the_engine_moves() {
        let expected = [
            ("independent", 8.0),
            ("BLT 4", 40.0),
            // Row by row it would be 72, 264 and 408.
            ("ring 16", 23.5),
            ("ring 64", 47.5),
            ("ring 100", 65.5),
            ("regenerate 4", 8.0),
            ("regenerate 64", 8.0),
        ];
        for ((name, _, _, form), (expected_name, bytes)) in forms().unwrap().into_iter().zip(expected) {
            assert_eq!((name.as_str(), moved(&form, false).total()), (expected_name, bytes));
            assert_eq!(moved(&form, true).critical, 12.0, "{name}");
        }
        let short = Form::banded_toeplitz(&[1.0, 0.5, 0.2]).unwrap();
        assert_eq!(moved(&short, false).total(), 20.0, "up to 8 bands a ring works row by row");
    }

    #[test]
    fn no_step_exceeds_the_bandwidth() {
        let measured = |gb_per_second: f64| Measured {
            name: String::new(),
            kind: Kind::Ring,
            bands: 64,
            state_bytes_per_param: 252,
            bytes_per_param: 47.5,
            rows_ahead: 8,
            measured_params: 1,
            fused_params_per_second: None,
            params_per_second: gb_per_second * 1e9 / 47.5,
            gb_per_second,
            share_of_bandwidth: 0.0,
            prepare: None,
            form: Form::independent(),
        };
        let mut forms = [measured(2.0), measured(8.0)];
        for (plain, expected) in [(10e9, [0.2, 0.8]), (4e9, [0.25, 1.0])] {
            let fastest = bandwidth(&mut forms, plain);
            assert_eq!(fastest, plain.max(8e9));
            assert_eq!([forms[0].share_of_bandwidth, forms[1].share_of_bandwidth], expected);
        }
    }
}

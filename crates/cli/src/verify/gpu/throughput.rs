//! The speed of every form, beside a plain copy of as many bytes and beside the prediction. Reported, never judged.

use super::cases::Options;
use super::compare::in_words;
use super::report::Device;
use super::session::Session;
use crate::bench::{Gpu, bench_forms, median_of};
use crate::failure::Result;
use crate::progress::Progress;
use corrnoise::examine::TimedSteps;
use corrnoise::planner::{Execution, Moved};
use corrnoise::{Dtype, Form};
use serde::Serialize;

/// Steps that are timed; the median counts.
const TIMED: usize = 20;
/// The most bytes that a form moves or holds, so that a small GPU has room for it and for a copy.
const MOST_BYTES: u64 = 4 << 30;

/// How fast one form was on one type of gradient.
#[derive(Serialize)]
pub struct Throughput {
    pub form: String,
    pub gradient: String,
    pub options: Options,
    pub parameters: u64,
    /// The bytes that a step must move per parameter; of a prepared one, those after its row was made.
    pub bytes_per_param: f64,
    /// The bytes per parameter that `prepare` moves before the step.
    pub background_bytes_per_param: f64,
    /// The median of the timed steps, of prepared ones after the row was made; null if the device failed.
    pub seconds_per_step: Option<f64>,
    pub fastest_seconds: Option<f64>,
    pub slowest_seconds: Option<f64>,
    /// The median of `prepare` and the step together; null where nothing is prepared.
    pub seconds_with_prepare: Option<f64>,
    /// A device-to-device copy that reads and writes as many bytes as the step moves.
    pub copy_seconds: Option<f64>,
    pub bytes_per_second: Option<f64>,
    /// The time of the copy over that of the step.
    pub share_of_copy: Option<f64>,
    /// The bound from the kernels' instructions and bytes and this device's clocks; predicted, not measured.
    pub predicted_seconds: f64,
    /// The same bound for `prepare` and the step together; null where nothing is prepared.
    pub predicted_seconds_with_prepare: Option<f64>,
    /// The predicted time over that of the step.
    pub share_of_prediction: Option<f64>,
    pub error: Option<String>,
}

impl Throughput {
    /// The measurement by name, for lists of what failed.
    pub fn name(&self) -> String {
        format!("throughput: {}, {} gradients{}", self.form, self.gradient, self.options.describe())
    }
}

/// The ways in which a form is measured: fused, and with as many rows ahead as pay on a GPU.
fn ways(form: &Form) -> Vec<Options> {
    match Execution::rows_ahead_on_gpu(form) {
        1 => vec![Options::FUSED],
        rows_ahead => {
            let staged = |prepare| Options { rows_ahead, prepare };
            vec![Options::FUSED, staged(false), staged(true)]
        }
    }
}

/// The number types of the gradients that a way is measured on. Types of 16 bits move the same bytes: one is enough where another kernel
/// than theirs makes the rows.
fn gradients(options: Options) -> &'static [Dtype] {
    if options.is_staged() { &[Dtype::F32, Dtype::Bf16] } else { &Dtype::ALL }
}

/// The number of parameters that every way of a form is measured on.
fn parameters(form: &Form, ways: &[Options], device: &Device, values: u64) -> u64 {
    let per_param = |options: &Options| {
        let Options { rows_ahead, prepare: prepared } = *options;
        let moved = Moved::of(form, Execution { gradient: Dtype::F32, rows_ahead, prepared }).total();
        let rows = if options.is_staged() { rows_ahead } else { 0 };
        moved.max((4 + form.state_bytes_per_param() + 4 * rows as u64) as f64)
    };
    let per_param = ways.iter().map(per_param).fold(1.0, f64::max);
    let room = MOST_BYTES.min(device.memory_bytes / 4) as f64 / per_param;
    (10 * values).min(room as u64).max(1)
}

/// Measures every form that `bench` measures, in every way.
pub fn measure(
    session: &mut Session,
    device: &Device,
    values: u64,
    progress: &mut Progress,
) -> Result<Vec<Throughput>> {
    let gpu = Gpu::of_device(
        &device.name,
        device.memory_bytes_per_second,
        device.multiprocessors as f64,
        device.clock_hz,
    );
    let mut list = Vec::new();
    for (name, kind, bands, form) in bench_forms()? {
        let ways = ways(&form);
        let parameters = parameters(&form, &ways, device, values);
        for options in ways {
            for &gradient in gradients(options) {
                progress.message(&format!("throughput: {name}, {gradient}{}", options.describe()));
                let execution =
                    Execution { gradient, rows_ahead: options.rows_ahead, prepared: options.prepare };
                let moved = Moved::of(&form, execution);
                let seconds = gpu.seconds_per_param(&form, bands, kind, execution);
                let mut row = Throughput {
                    form: name.clone(),
                    gradient: gradient.to_string(),
                    options,
                    parameters,
                    bytes_per_param: moved.critical,
                    background_bytes_per_param: moved.background,
                    seconds_per_step: None,
                    fastest_seconds: None,
                    slowest_seconds: None,
                    seconds_with_prepare: None,
                    copy_seconds: None,
                    bytes_per_second: None,
                    share_of_copy: None,
                    predicted_seconds: seconds.critical * parameters as f64,
                    predicted_seconds_with_prepare: options
                        .prepare
                        .then_some(seconds.total * parameters as f64),
                    share_of_prediction: None,
                    error: None,
                };
                if let Err(failure) = time(session, &form, bands, gradient, &mut row) {
                    session.give_up();
                    row.error = Some(in_words(failure)?);
                }
                list.push(row);
            }
        }
    }
    Ok(list)
}

fn time(
    session: &mut Session,
    form: &Form,
    bands: usize,
    gradient: Dtype,
    row: &mut Throughput,
) -> Result<()> {
    let device = session.device()?;
    let mut seconds = device.step_seconds(TimedSteps {
        form,
        // A step has all its rows only after as many as there are bands.
        history: bands,
        dim: row.parameters,
        dtype: gradient,
        way: row.options.into(),
        count: TIMED,
    })?;
    let moved = row.bytes_per_param * row.parameters as f64;
    let mut copies = device.copy_seconds((moved / 2.0) as usize, TIMED)?;
    let (step, copy) = (median_of(&mut seconds.step), median_of(&mut copies));
    row.seconds_per_step = Some(step);
    row.fastest_seconds = seconds.step.first().copied();
    row.slowest_seconds = seconds.step.last().copied();
    row.seconds_with_prepare = row.options.prepare.then(|| median_of(&mut seconds.with_prepare));
    row.copy_seconds = Some(copy);
    row.bytes_per_second = Some(moved / step);
    row.share_of_copy = Some(copy / step);
    row.share_of_prediction = Some(row.predicted_seconds / step);
    Ok(())
}

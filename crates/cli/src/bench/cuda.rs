//! Noise throughput on a CUDA device: the median of at least 20 steps timed by events on the stream, after warm-up, with the L2 cache
//! overwritten before each, beside a plain copy in the same run. Forms whose rows pay to be made ahead are measured so, after `prepare`, and fused.

use super::args::BenchArgs;
use super::budget::Gpu;
use super::machine::Machine;
use super::throughput::{self, Kind, Measured, Prepare, median_of};
use crate::failure::Result;
use crate::parse::Device;
use corrnoise::examine::{TimedSteps, Way};
use corrnoise::planner::{Execution, Moved};
use corrnoise::{Dtype, examine};

const LEAST_TIMED: usize = 20;

/// Measures the device with this ordinal.
pub fn measure(args: &BenchArgs, ordinal: usize) -> Result<Machine> {
    let timed = (args.steps.unwrap_or(0) as usize).max(LEAST_TIMED);
    let device = examine::open(Device::Cuda(ordinal))?;
    let facts = device.facts()?;
    let copied: usize = if args.quick { 64 << 20 } else { 512 << 20 };
    let mut fastest = 2.0 * copied as f64 / median_of(&mut device.copy_seconds(copied, timed)?);
    let mut forms = Vec::new();
    for (name, kind, bands, form) in throughput::forms()? {
        let rows = if kind == Kind::Regenerate { bands } else { 1 };
        // A GPU has ten times the bandwidth: ten times the parameters.
        let params = 10 * throughput::size(&form, rows, args.quick);
        let rows_ahead = Execution::rows_ahead_on_gpu(&form);
        let time = |rows_ahead, prepare| {
            let way = Way { rows_ahead, prepare };
            let (form, dtype) = (&form, Dtype::F32);
            device.step_seconds(TimedSteps { form, history: bands, dim: params, dtype, way, count: timed })
        };
        let rate = |mut seconds: Vec<f64>| params as f64 / median_of(&mut seconds);
        let params_per_second = rate(time(rows_ahead, false)?.step);
        let moved = |prepared| Moved::of(&form, Execution { gradient: Dtype::F32, rows_ahead, prepared });
        let (mut fused, mut prepare) = (None, None);
        if rows_ahead > 1 {
            let rate_of_fused = rate(time(1, false)?.step);
            let fused_bytes = Moved::of(&form, Execution::fused(Dtype::F32)).total();
            fastest = fastest.max(fused_bytes * rate_of_fused);
            fused = Some(rate_of_fused);
            let both = time(rows_ahead, true)?;
            let (step, with_prepare) = (rate(both.step), rate(both.with_prepare));
            prepare = Some(Prepare {
                critical_bytes_per_param: moved(true).critical,
                background_bytes_per_param: moved(true).background,
                step_params_per_second: step,
                prepare_params_per_second: 1.0 / (1.0 / with_prepare - 1.0 / step).max(0.0),
            });
        }
        let bytes_per_param = moved(false).total();
        forms.push(Measured {
            name,
            kind,
            bands,
            state_bytes_per_param: form.state_bytes_per_param(),
            bytes_per_param,
            rows_ahead,
            measured_params: params,
            params_per_second,
            fused_params_per_second: fused,
            gb_per_second: bytes_per_param * params_per_second / 1e9,
            share_of_bandwidth: 0.0,
            prepare,
            form,
        });
    }
    let bytes_per_second = throughput::bandwidth(&mut forms, fastest);
    // The rate of training is the peak's share that was asked for, where the peak is known.
    let gpu = Gpu::of_device(
        &facts.name,
        facts.memory_bytes_per_second,
        facts.multiprocessors as f64,
        facts.clock_hz,
    );
    let flops_per_second = gpu.peak_flops.map(|peak| peak * args.mfu);
    Ok(Machine { device: facts.name, threads: 0, flops_per_second, bytes_per_second, forms })
}

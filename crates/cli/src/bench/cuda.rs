//! Noise throughput on a CUDA device: the median of at least 20 steps timed by events on the stream, after warm-up, with the L2 cache
//! overwritten before each, beside a plain copy in the same run.

use super::args::BenchArgs;
use super::budget;
use super::machine::Machine;
use super::throughput::{self, Kind, Measured};
use super::traffic::Traffic;
use crate::failure::{Failure, Result};
use corrnoise::cuda::cudarc::driver::{CudaStream, DriverError, sys::CUevent_flags};
use corrnoise::cuda::{OnCuda, stream};
use corrnoise::{Form, Key, Mechanism, Plan, Shard};
use std::sync::Arc;

const WARM_UP: usize = 3;
const LEAST_TIMED: usize = 20;
/// Larger than any L2.
const FLUSH_BYTES: usize = 256 << 20;

fn failed(error: DriverError) -> Failure {
    Failure::input(format!("CUDA device failed: {error}"))
}

/// Measures the device with this ordinal.
pub fn measure(args: &BenchArgs, ordinal: usize) -> Result<Machine> {
    let timed = (args.steps.unwrap_or(0) as usize).max(LEAST_TIMED);
    let stream = stream(ordinal)?;
    let name = stream.context().name().unwrap_or_else(|_| "CUDA device".into());
    let copied: usize = if args.quick { 16 << 20 } else { 128 << 20 };
    let from = stream.alloc_zeros::<f32>(copied).map_err(failed)?;
    let mut to = stream.alloc_zeros::<f32>(copied).map_err(failed)?;
    let copy = median(&stream, timed, || stream.memcpy_dtod(&from, &mut to).map_err(failed))?;
    let copy_rate = 8.0 * copied as f64 / copy;
    drop((from, to));
    let mut forms = Vec::new();
    for (form_name, kind, bands, form) in throughput::forms()? {
        let rows = if kind == Kind::Regenerate { bands } else { 1 };
        // A GPU has ten times the bandwidth: ten times the parameters.
        let params = 10 * throughput::size(&form, rows, args.quick);
        let seconds = noise_seconds(&stream, &form, bands, params, timed)?;
        // The kernels work row by row.
        let bytes_per_param = Traffic::new(&form, 1).bytes() as f64;
        let rate = bytes_per_param * params as f64 / seconds;
        forms.push(Measured {
            name: form_name,
            kind,
            bands,
            state_bytes_per_param: form.state_bytes_per_param(),
            bytes_per_param,
            measured_params: params,
            params_per_second: params as f64 / seconds,
            gb_per_second: rate / 1e9,
            share_of_bandwidth: 0.0,
        });
    }
    let bytes_per_second = throughput::bandwidth(&mut forms, copy_rate);
    // The rate of training is the peak's share that was asked for, where the peak is known.
    let known = budget::GPUS.iter().find(|gpu| name.contains(&gpu.name[..4]));
    let flops_per_second = known.map(|gpu| gpu.peak_flops * args.mfu);
    Ok(Machine { device: name, threads: 0, flops_per_second, bytes_per_second, forms })
}

fn noise_seconds(
    stream: &Arc<CudaStream>,
    form: &Form,
    bands: usize,
    params: u64,
    timed: usize,
) -> Result<f64> {
    let plan = Plan::new((bands + WARM_UP + timed) as u64, form.clone(), 0.5)?;
    let mut noise = Mechanism::cuda(&plan, Key::from_os()?, Shard::whole(params)?, stream)?;
    let mut gradient = stream.alloc_zeros::<f32>(params as usize).map_err(failed)?;
    // A step has all its rows only after as many as there are bands.
    for _ in 0..bands {
        noise.add_to(&mut gradient)?;
    }
    median(stream, timed, || Ok(noise.add_to(&mut gradient)?))
}

fn median(stream: &Arc<CudaStream>, timed: usize, mut step: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut flush = stream.alloc_zeros::<u8>(FLUSH_BYTES).map_err(failed)?;
    let flags = Some(CUevent_flags::CU_EVENT_DEFAULT);
    let mut seconds = Vec::new();
    for _ in 0..WARM_UP + timed {
        stream.memset_zeros(&mut flush).map_err(failed)?;
        let start = stream.record_event(flags).map_err(failed)?;
        step()?;
        let end = stream.record_event(flags).map_err(failed)?;
        seconds.push(f64::from(start.elapsed_ms(&end).map_err(failed)?) / 1e3);
    }
    let timed_seconds = &mut seconds[WARM_UP..];
    timed_seconds.sort_by(f64::total_cmp);
    Ok(timed_seconds[timed / 2])
}

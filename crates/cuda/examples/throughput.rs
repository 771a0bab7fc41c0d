//! Noise throughput on a GPU: `cargo run --release -p corrnoise-cuda --example throughput [parameters] [device]`.
//!
//! Each number is the median of 20 steps timed by events on the stream, after warm-up, with the L2 cache overwritten before each;
//! beside it the bytes that the form must move and their share of what a plain copy reaches in the same run.

use corrnoise_core::{Error, Form, Key, Mechanism, Plan, Result, Shard};
use corrnoise_cuda::cudarc::driver::{CudaStream, DriverError, sys::CUevent_flags};
use corrnoise_cuda::cudarc::driver::{DeviceRepr, ValidAsZeroBits};
use corrnoise_cuda::{OnCuda, stream};
use half::bf16;
use std::sync::Arc;

const WARM_UP: usize = 3;
const TIMED: usize = 20;
/// The size of a buffer that is larger than any L2 cache.
const FLUSH_BYTES: usize = 256 << 20;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: u64, name: &str| match arguments.next() {
        None => Ok(default),
        Some(text) => text.parse().map_err(|_| Error::parameter(name, &text, "a whole number")),
    };
    let (params, device) = (number(100_000_000, "parameters")?, number(0, "device")?);
    let stream = stream(device as usize)?;
    let name = stream.context().name().unwrap_or_default();
    let copy = copy_bandwidth(&stream, params).map_err(failed)?;
    println!("{name}, {params} parameters, ChaCha12; a plain copy moves {:.0} GB/s", copy / 1e9);
    println!("{:<24}{:>12}{:>14}{:>12}{:>12}", "form", "ps/param", "params/s", "GB/s", "of copy");
    let blt4 = || Form::blt(&[0.29, 0.13, 0.06, 0.015], &[0.22, 0.71, 0.944, 0.9957]);
    let bands: Vec<f64> = (0..16).map(|age| 1.0 / (1.0 + f64::from(age))).collect();
    let show = |name: &str, bytes: f64, seconds: f64| {
        let per_param = seconds / params as f64;
        let rate = bytes / per_param;
        println!(
            "{name:<24}{:>12.2}{:>14.3e}{:>12.0}{:>11.0}%",
            1e12 * per_param,
            1.0 / per_param,
            rate / 1e9,
            100.0 * rate / copy
        );
    };
    show("independent f32", 8.0, time::<f32>(&stream, Form::independent(), params)?);
    show("independent bf16", 4.0, time::<bf16>(&stream, Form::independent(), params)?);
    show("BLT, 4 buffers f32", 40.0, time::<f32>(&stream, blt4()?, params)?);
    show("BLT, 4 buffers bf16", 36.0, time::<bf16>(&stream, blt4()?, params)?);
    show("16 bands f32", 72.0, time::<f32>(&stream, Form::banded_toeplitz(&bands)?, params)?);
    show(
        "4 rows regenerated f32",
        8.0,
        time::<f32>(&stream, Form::regenerate(&[1.0, -0.5, -0.125, -0.0625])?, params)?,
    );
    Ok(())
}

fn failed(error: DriverError) -> Error {
    Error::Device(error.to_string())
}

/// Bytes per second of a device-to-device copy, both directions counted.
fn copy_bandwidth(stream: &Arc<CudaStream>, params: u64) -> std::result::Result<f64, DriverError> {
    let from = stream.alloc_zeros::<f32>(params as usize)?;
    let mut to = stream.alloc_zeros::<f32>(params as usize)?;
    let seconds = median_seconds(stream, || stream.memcpy_dtod(&from, &mut to))?;
    Ok(8.0 * params as f64 / seconds)
}

/// The median time of one step in seconds.
fn time<T: corrnoise_core::Element + DeviceRepr + ValidAsZeroBits>(
    stream: &Arc<CudaStream>,
    form: Form,
    params: u64,
) -> Result<f64> {
    let plan = Plan::new((WARM_UP + TIMED) as u64, form, 0.5)?;
    let mut noise = Mechanism::cuda(&plan, Key::from_os()?, Shard::whole(params)?, stream)?;
    let mut gradient = stream.alloc_zeros::<T>(params as usize).map_err(failed)?;
    let mut outcome = Ok(());
    let seconds = median_seconds(stream, || {
        outcome = std::mem::replace(&mut outcome, Ok(())).and_then(|()| noise.add_to(&mut gradient));
        Ok(())
    });
    outcome?;
    seconds.map_err(failed)
}

fn median_seconds(
    stream: &Arc<CudaStream>,
    mut step: impl FnMut() -> std::result::Result<(), DriverError>,
) -> std::result::Result<f64, DriverError> {
    let mut flush = stream.alloc_zeros::<u8>(FLUSH_BYTES)?;
    let flags = Some(CUevent_flags::CU_EVENT_DEFAULT);
    let mut seconds = Vec::new();
    for _ in 0..WARM_UP + TIMED {
        stream.memset_zeros(&mut flush)?;
        let start = stream.record_event(flags)?;
        step()?;
        let end = stream.record_event(flags)?;
        seconds.push(f64::from(start.elapsed_ms(&end)?) / 1e3);
    }
    let timed = &mut seconds[WARM_UP..];
    timed.sort_by(f64::total_cmp);
    Ok(timed[TIMED / 2])
}

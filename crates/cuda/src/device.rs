//! Finding a device: everything that can be missing becomes an error value here, before cudarc would panic.

use crate::current::KeepCurrent;
use corrnoise_core::{Error, Result};
use cudarc::driver::{CudaContext, CudaStream, DriverError};
use std::sync::Arc;

/// The compute capability of Volta, which is the target of the embedded PTX.
const OLDEST_CAPABILITY: (i32, i32) = (7, 0);

/// The number of CUDA devices of this machine; an error if there is no driver.
pub fn device_count() -> Result<usize> {
    if !is_driver_present() {
        return Err(Error::Device(
            "no NVIDIA driver: libcuda cannot be loaded; install the driver, or use the CPU engine".into(),
        ));
    }
    // A driver without a device says so as an error of its own.
    let count = CudaContext::device_count().map_err(device_error("look for CUDA devices"))?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// True if libcuda can be loaded. Another package of the program, such as candle, can make cudarc link libcuda instead of loading it: then
/// cudarc lacks this function, its name resolves to the fallback here, and the program could not have started without a driver.
pub(crate) fn is_driver_present() -> bool {
    #[allow(dead_code, reason = "the fallback")]
    unsafe fn is_culib_present() -> bool {
        true
    }
    {
        #[allow(unused_imports, reason = "empty of the name where libcuda is linked")]
        use cudarc::driver::sys::*;
        // SAFETY: loads the driver library as any call of the driver would; its initialisers are the driver's own.
        unsafe { is_culib_present() }
    }
}

/// The default stream of a device, for programs that have no stream of their own yet.
pub fn stream(ordinal: usize) -> Result<Arc<CudaStream>> {
    let count = device_count()?;
    if ordinal >= count {
        return Err(Error::parameter(
            "CUDA device",
            ordinal,
            format!("less than {count}, the number there is"),
        ));
    }
    let _kept = KeepCurrent::new();
    let context = CudaContext::new(ordinal).map_err(device_error("open a CUDA device"))?;
    check_capability(&context)?;
    Ok(context.default_stream())
}

/// Refuses a device that cannot run the embedded PTX.
pub(crate) fn check_capability(context: &CudaContext) -> Result<()> {
    let got = context.compute_capability().map_err(device_error("ask for the compute capability"))?;
    if got < OLDEST_CAPABILITY {
        let name = context.name().unwrap_or_default();
        return Err(Error::Device(format!(
            "{name} is too old: compute capability {}.{}, expected 7.0 (Volta) or newer",
            got.0, got.1
        )));
    }
    Ok(())
}

/// Turns the driver's answer into an error that names what was tried.
pub(crate) fn device_error(action: &'static str) -> impl FnOnce(DriverError) -> Error {
    move |error| Error::Device(format!("cannot {action}: {}", describe(error)))
}

fn describe(error: DriverError) -> String {
    let name = error.error_name().ok().map(|name| name.to_string_lossy().into_owned());
    let text = error.error_string().ok().map(|text| text.to_string_lossy().into_owned());
    match (name, text) {
        (Some(name), Some(text)) => format!("{text} ({name})"),
        _ => format!("driver error {:?}", error.0),
    }
}

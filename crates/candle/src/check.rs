//! The checks of gradients, made before anything is locked or changed.

use candle_core::{DType, Device, Tensor};
use corrnoise::{Dtype, Error, Result, Shard};

/// Gradients that passed the checks, so that a step can be made on them.
pub(crate) struct Checked<'a> {
    /// The tensors, one per segment of the shard.
    pub(crate) tensors: &'a [&'a Tensor],
    /// The common number type of the tensors.
    pub(crate) dtype: Dtype,
    /// The indices of the tensors, sorted by the address of their storage, which is the order that candle locks in.
    pub(crate) by_address: Vec<usize>,
}

/// Checks gradients against a shard; `name` gives their names in errors, `expected` the device they belong on.
pub(crate) fn check<'a>(
    shard: &Shard,
    tensors: &'a [&'a Tensor],
    name: &dyn Fn(usize) -> String,
    expected: (&dyn Fn(&Device) -> bool, &str),
) -> Result<Checked<'a>> {
    let segments = shard.segments();
    if tensors.len() != segments.len() {
        let one_each = format!("{}, one per segment of the shard", segments.len());
        return Err(Error::length("list of gradients", tensors.len(), one_each));
    }
    let mut dtype = None;
    for (i, (tensor, segment)) in tensors.iter().zip(segments).enumerate() {
        check_device(&name(i), tensor.device(), expected)?;
        check_layout(&name(i), tensor)?;
        let len = segment.end - segment.start;
        if tensor.elem_count() as u64 != len {
            return Err(Error::length(name(i), tensor.elem_count(), len.to_string()));
        }
        let own = check_dtype(&name(i), tensor.dtype(), dtype, &name(0))?;
        dtype = Some(own);
    }
    let Some(dtype) = dtype else { return Err(Error::length("list of gradients", 0, "at least 1")) };
    Ok(Checked { tensors, dtype, by_address: by_address(tensors, name)? })
}

fn check_device(name: &str, got: &Device, expected: (&dyn Fn(&Device) -> bool, &str)) -> Result<()> {
    match expected.0(got) {
        true => Ok(()),
        false => Err(Error::parameter(format!("device of {name}"), format!("{got:?}"), expected.1)),
    }
}

fn check_layout(name: &str, tensor: &Tensor) -> Result<()> {
    if tensor.is_contiguous() {
        return Ok(());
    }
    let found = format!("strided by {:?} with shape {:?}", tensor.stride(), tensor.dims());
    Err(Error::parameter(format!("memory of {name}"), found, "a contiguous tensor: call contiguous()"))
}

/// The engine's number type for candle's; it must be that of the first gradient, where there was one.
fn check_dtype(name: &str, got: DType, first: Option<Dtype>, first_name: &str) -> Result<Dtype> {
    let refuse = |expected| Err(Error::parameter(format!("type of {name}"), got.as_str(), expected));
    match (got.as_str().parse(), first) {
        (Ok(own), Some(first)) if own != first => refuse(format!("{first}, that of {first_name}")),
        (Ok(own), _) => Ok(own),
        (Err(_), _) => refuse(Dtype::names("or")),
    }
}

/// Refuses two gradients in one storage: its lock cannot be taken twice.
fn by_address(tensors: &[&Tensor], name: &dyn Fn(usize) -> String) -> Result<Vec<usize>> {
    let storage = |tensor: &Tensor| std::ptr::from_ref(&*tensor.storage_and_layout().0).addr();
    let mut found: Vec<_> = tensors.iter().enumerate().map(|(i, tensor)| (storage(tensor), i)).collect();
    found.sort_unstable();
    if let Some(pair) = found.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        let (one, two) = (name(pair[0].1), name(pair[1].1));
        let expected = "a storage of its own: call copy() on one of them";
        return Err(Error::parameter(format!("storage of {two}"), format!("that of {one}"), expected));
    }
    Ok(found.into_iter().map(|(_, i)| i).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests refusals by device. A machine without a device cannot make a tensor on it, but candle names devices everywhere.
    #[cfg(not(target_os = "macos"))]
    #[test]
    fn other_devices_are_refused_by_name() {
        let expected: (&dyn Fn(&Device) -> bool, &str) = (&Device::is_cpu, "the CPU");
        let metal = Device::Metal(candle_core::MetalDevice);
        let error = check_device("gradient of \"w\"", &metal, expected).unwrap_err().to_string();
        assert_eq!(error, "device of gradient of \"w\" is Metal(MetalDevice): expected the CPU");
        check_device("gradient of \"w\"", &Device::Cpu, expected).unwrap();
    }
}

//! Prints `CASE DTYPE HEX` for every case of `tests/data/bindings.json`, made on candle tensors: the gradients of the last step.
//!
//! To run it: `cargo run -p corrnoise-candle --example bindings`.

use candle_core::{DType, Device, Tensor, WithDType};
use corrnoise::{AnyMechanism, Key, Layout, Place, Plan};
use half::{bf16, f16};
use serde_json::Value;
use std::error::Error;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/bindings.json");

/// Tensor `k` before the noise: `((37·i + 11·k) mod 101 − 50) / 16` at coordinate `i`, exact in every type.
fn gradient(k: u64, len: u64, dtype: DType) -> candle_core::Result<Tensor> {
    let values = (0..len).map(|i| ((37 * i + 11 * k) % 101) as f32 / 16.0 - 50.0 / 16.0);
    Tensor::from_iter(values, &Device::Cpu)?.to_dtype(dtype)
}

fn hex<T: WithDType>(tensor: &Tensor, bytes: impl Fn(T) -> Vec<u8>) -> candle_core::Result<String> {
    Ok(tensor.to_vec1::<T>()?.into_iter().flat_map(bytes).map(|byte| format!("{byte:02x}")).collect())
}

/// The last step of a case's plan, in hexadecimal.
fn last_step(file: &Value, plan: &Plan, dtype: DType) -> Result<String, Box<dyn Error>> {
    let sizes: Vec<(String, u64)> = serde_json::from_value(file["sizes"].clone())?;
    let text = |field: &str| file[field].as_str().ok_or(format!("{field} is not a string"));
    let key = Key::from_hex(text("key")?, text("run_id")?)?;
    let mut noise = AnyMechanism::new(plan, key, Layout::new(sizes.clone())?.whole(), &Place::default())?;
    let mut last = String::new();
    for _ in 0..plan.num_steps() {
        let tensors = sizes.iter().enumerate().map(|(k, (_, len))| gradient(k as u64, *len, dtype));
        let tensors = tensors.collect::<candle_core::Result<Vec<Tensor>>>()?;
        corrnoise_candle::add_to(&mut noise, &tensors.iter().collect::<Vec<_>>())?;
        let all = Tensor::cat(&tensors, 0)?;
        last = match dtype {
            DType::BF16 => hex(&all, |value: bf16| value.to_le_bytes().to_vec())?,
            DType::F16 => hex(&all, |value: f16| value.to_le_bytes().to_vec())?,
            _ => hex(&all, |value: f32| value.to_le_bytes().to_vec())?,
        };
    }
    Ok(last)
}

/// `(case, type, what candle's tensors hold, what the file says)` of every case and type.
pub fn all() -> Result<Vec<[String; 4]>, Box<dyn Error>> {
    let file: Value = serde_json::from_str(&std::fs::read_to_string(FILE)?)?;
    let mut made = Vec::new();
    for case in file["cases"].as_array().ok_or("cases is not a list")? {
        let text = |field: &str| case[field].as_str().ok_or(format!("{field} is not a string"));
        let plan = Plan::from_json(text("plan")?)?;
        for (name, dtype) in [("float32", DType::F32), ("bfloat16", DType::BF16), ("float16", DType::F16)] {
            let hex = last_step(&file, &plan, dtype)?;
            made.push([text("name")?.into(), name.into(), hex, text(name)?.into()]);
        }
    }
    Ok(made)
}

fn main() -> Result<(), Box<dyn Error>> {
    for [case, dtype, hex, _] in all()? {
        println!("{case} {dtype} {hex}");
    }
    Ok(())
}

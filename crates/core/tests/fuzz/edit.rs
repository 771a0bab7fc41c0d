//! Changes of a checkpoint: bytes of the file, or values of its header. Other files are changed in the same way.

use crate::Random;
use crate::seal::{assemble, header, info};
use serde_json::{Value, json};

/// Changes a file in one to three ways.
pub(crate) fn edit(random: &mut Random, bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..1 + random.below(3) {
        bytes = match random.below(2) {
            0 => damaged(random, bytes),
            _ => edited_header(random, bytes),
        };
    }
    bytes
}

/// Bytes flipped, cut off, added or copied.
pub(crate) fn damaged(random: &mut Random, mut bytes: Vec<u8>) -> Vec<u8> {
    match random.below(4) {
        0 => flipped(random, bytes),
        1 => {
            bytes.truncate(random.below(bytes.len() + 1));
            bytes
        }
        2 => {
            let more = random.below(100);
            bytes.extend((0..more).map(|_| random.word() as u8));
            bytes
        }
        _ => spliced(random, bytes),
    }
}

/// Bits at a few places, half of the time within the first 1,000 bytes, where the header is.
pub(crate) fn flipped(random: &mut Random, mut bytes: Vec<u8>) -> Vec<u8> {
    for _ in 0..1 + random.below(4) {
        let end = if random.below(2) == 0 { bytes.len().min(1000) } else { bytes.len() };
        if end > 0 {
            bytes[random.below(end)] ^= 1 << random.below(8);
        }
    }
    bytes
}

/// A part of the file copied over another, or put in between.
fn spliced(random: &mut Random, mut bytes: Vec<u8>) -> Vec<u8> {
    let (from, to) = (random.below(bytes.len() + 1), random.below(bytes.len() + 1));
    let len = random.below(200).min(bytes.len() - from);
    let part = bytes[from..from + len].to_vec();
    let end = if random.below(2) == 0 { (to + len).min(bytes.len()) } else { to };
    bytes.splice(to..end, part);
    bytes
}

fn edited_header(random: &mut Random, bytes: Vec<u8>) -> Vec<u8> {
    let Some((mut json, data)) = header(&bytes) else { return bytes };
    if random.below(2) == 0 {
        change(random, &mut json);
    } else if let Some(mut inner) = info(&json) {
        change(random, &mut inner);
        json["__metadata__"]["corrnoise"] = Value::String(inner.to_string());
    }
    let mut text = json.to_string().into_bytes();
    if random.below(8) > 0 {
        text.resize(text.len().next_multiple_of(8), b' ');
    }
    assemble(&text, &bytes[data..])
}

/// Descends to some value of a JSON document and changes it.
pub(crate) fn change(random: &mut Random, value: &mut Value) {
    let deeper = random.below(5) > 0;
    match value {
        Value::Object(map) if !map.is_empty() && deeper => {
            let at = random.below(map.len());
            let name = map.keys().nth(at).expect("one of them").clone();
            match random.below(12) {
                0 => drop(map.remove(&name)),
                1 => {
                    let copy = map[&name].clone();
                    map.insert(random.pick(&["key", "version", "foreign", "mac", "state"]).to_string(), copy);
                }
                _ => change(random, map.get_mut(&name).expect("its name")),
            }
        }
        Value::Array(list) if !list.is_empty() && deeper => {
            let (at, other) = (random.below(list.len()), random.below(list.len()));
            match random.below(8) {
                0 => drop(list.remove(at)),
                1 => list.insert(other, list[at].clone()),
                2 => list.swap(at, other),
                _ => change(random, &mut list[at]),
            }
        }
        other => replace(random, other),
    }
}

fn replace(random: &mut Random, value: &mut Value) {
    let near = value.as_u64().unwrap_or(0);
    let choices = [
        json!(near.wrapping_add(1)),
        json!(near.wrapping_sub(1)),
        json!(near / 2),
        json!(near.wrapping_mul(2)),
        json!(0),
        json!(1),
        json!(32),
        json!(1_u64 << 48),
        json!((1_u64 << 48) + 1),
        json!(u64::MAX),
        json!(-1),
        json!(0.5),
        json!(null),
        json!([]),
        json!({}),
        json!("F32"),
        json!("BF16"),
        json!("00112233445566778899aabbccddeeff"),
        json!([[0, 7], [5, 9]]),
        json!([[3, 3]]),
        json!([[0, ""], [1, "00112233445566778899aabbccddeeff"]]),
    ];
    *value = random.pick(&choices).clone();
}

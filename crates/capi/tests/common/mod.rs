//! Handles and gradients for tests that call the entries as C does.

// Every test file compiles this for itself and uses a part of it.
#![allow(dead_code)]

use corrnoise::{Element, Form, Key, Layout, Plan, Shard};
use corrnoise_capi::*;
use half::{bf16, f16};
use std::ffi::{CStr, CString};
use std::ptr::{null, null_mut};

pub const PLAN_STEPS: u64 = 6;

/// An entry that adds to gradients of one type.
pub type Entry<E> = unsafe fn(*const MechanismHandle, *const *mut E, *const usize, usize) -> Status;

/// The three entries, with the types that Rust has for their gradients.
pub const ENTRIES: (Entry<f32>, Entry<bf16>, Entry<f16>) = (
    // SAFETY: the caller's promise, passed on.
    |mechanism, gradients, lengths, count| unsafe {
        corrnoise_add_to_f32(mechanism, gradients, lengths, count)
    },
    // SAFETY: the caller's promise, passed on.
    |mechanism, gradients, lengths, count| unsafe {
        corrnoise_add_to_bf16(mechanism, gradients.cast(), lengths, count)
    },
    // SAFETY: the caller's promise, passed on.
    |mechanism, gradients, lengths, count| unsafe {
        corrnoise_add_to_f16(mechanism, gradients.cast(), lengths, count)
    },
);

pub fn plan() -> Plan {
    // The band is wide enough that rows are made ahead.
    let coefs: Vec<f64> = (0..12).map(|i| 1.0 / (i as f64 + 1.0)).collect();
    Plan::new(PLAN_STEPS, Form::banded_toeplitz(&coefs).unwrap(), 0.7).unwrap()
}

fn key_bytes() -> [u8; 32] {
    std::array::from_fn(|i| (i * 29 + 3) as u8)
}

pub fn key() -> Key {
    Key::from_bytes(key_bytes(), "capi")
}

pub fn names() -> [CString; 3] {
    ["weight", "bias", "scale"].map(|name| CString::new(name).unwrap())
}

pub fn shard() -> Shard {
    Layout::new([("weight", 700), ("bias", 10), ("scale", 300)]).unwrap().whole()
}

pub fn lengths(shard: &Shard) -> Vec<usize> {
    shard.segments().iter().map(|segment| (segment.end - segment.start) as usize).collect()
}

/// Values that differ at every coordinate.
pub fn gradients<E: Element>(shard: &Shard, from_f32: fn(f32) -> E) -> Vec<Vec<E>> {
    let value = |coord: u64| from_f32((coord as f32 * 0.37).sin() * 3.0);
    shard.segments().iter().map(|segment| segment.clone().map(value).collect()).collect()
}

pub fn message() -> String {
    // SAFETY: a string that stays until this thread's next failure.
    unsafe { CStr::from_ptr(corrnoise_last_error_message()) }.to_str().unwrap().into()
}

/// The handles that a mechanism is made of, which are freed at the end.
pub struct Handles {
    pub plan: *mut PlanHandle,
    pub key: *mut KeyHandle,
    pub shard: *mut ShardHandle,
}

impl Handles {
    pub fn new() -> Handles {
        let (mut made, json) =
            (Handles { plan: null_mut(), key: null_mut(), shard: null_mut() }, plan().to_json());
        let (json, names, lengths) = (CString::new(json).unwrap(), names(), [700, 10, 300]);
        let names = names.each_ref().map(|name| name.as_ptr());
        // SAFETY: texts and lists are this function's own, and the three pointers may be written to.
        unsafe {
            assert_eq!(corrnoise_plan_from_json(json.as_ptr(), &mut made.plan), Status::Ok);
            let status = corrnoise_key_from_bytes(key_bytes().as_ptr(), c"capi".as_ptr(), &mut made.key);
            assert_eq!(status, Status::Ok);
            let status = corrnoise_shard_tensors(names.as_ptr(), lengths.as_ptr(), 3, &mut made.shard);
            assert_eq!(status, Status::Ok);
        }
        made
    }
}

impl Drop for Handles {
    fn drop(&mut self) {
        // SAFETY: made by `new`, and used no more.
        unsafe {
            corrnoise_plan_free(self.plan);
            corrnoise_key_free(self.key);
            corrnoise_shard_free(self.shard);
        }
    }
}

/// A mechanism on the whole shard, which takes the key out of its handle.
pub fn mechanism(handles: &Handles) -> *mut MechanismHandle {
    let mut noise = null_mut();
    // SAFETY: the handles are alive.
    let status =
        unsafe { corrnoise_mechanism_new(handles.plan, handles.key, handles.shard, null(), &mut noise) };
    assert_eq!(status, Status::Ok, "{}", message());
    noise
}

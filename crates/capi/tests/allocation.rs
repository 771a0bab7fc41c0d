//! A step through C allocates nothing.

mod common;

use common::{ENTRIES, Entry, Handles, gradients, lengths, mechanism, message, shard};
use corrnoise::Element;
use corrnoise_capi::*;
use corrnoise_testkit::allocations::{Counting, allocations};
use half::{bf16, f16};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count<E: Element>(entry: Entry<E>, from_f32: fn(f32) -> E) {
    let (handles, shard) = (Handles::new(), shard());
    let noise = mechanism(&handles);
    let (mut values, lengths) = (gradients(&shard, from_f32), lengths(&shard));
    let pointers: Vec<*mut E> = values.iter_mut().map(Vec::as_mut_ptr).collect();
    let mut before = 0;
    for step in 0..6 {
        // The first steps may allocate memory that later steps reuse.
        if step == 2 {
            before = allocations();
        }
        // SAFETY: three vectors of the right lengths.
        let status = unsafe { entry(noise, pointers.as_ptr(), lengths.as_ptr(), 3) };
        assert_eq!(status, Status::Ok, "{}", message());
    }
    assert_eq!(allocations(), before);
    // SAFETY: made above.
    unsafe { corrnoise_mechanism_free(noise) };
}

/// This is the only test of this file: the allocations of a second one, running beside it, would be counted too.
#[test]
fn a_step_allocates_nothing() {
    let (f32_entry, bf16_entry, f16_entry) = ENTRIES;
    count::<f32>(f32_entry, |value| value);
    count::<bf16>(bf16_entry, bf16::from_f32);
    count::<f16>(f16_entry, f16::from_f32);
}

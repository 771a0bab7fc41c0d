//! The entries, called as C calls them: bits against Rust's, and every refusal with its status and message.

mod common;

use common::{
    ENTRIES, Entry, Handles, PLAN_STEPS, gradients, key, lengths, mechanism, message, names, plan, shard,
};
use corrnoise::{CpuOptions, Element, Mechanism, Resume, Shard};
use corrnoise_capi::*;
use half::{bf16, f16};
use std::ffi::CString;
use std::fmt::Debug;
use std::ptr::{null, null_mut};

fn file(path: &std::path::Path) -> CString {
    CString::new(path.to_str().unwrap()).unwrap()
}

/// Makes the same steps through Rust and through C, saved and resumed in between, on a part of every tensor.
fn compare<E: Element + Copy + PartialEq + Debug>(entry: Entry<E>, from_f32: fn(f32) -> E) {
    let folder = tempfile::tempdir().unwrap();
    let (plan, parts) = (plan(), [3..650, 1024..1030, 1600..1700]);
    let part: Shard = shard().select(&parts).unwrap();
    let mut rust = Mechanism::cpu(&plan, key(), part.clone()).unwrap();
    let ranges = parts.map(|range| Range { start: range.start, end: range.end });
    let handles = Handles::new();
    let (mut selected, mut noise) = (null_mut(), null_mut());
    // SAFETY: handles and lists are this function's own.
    unsafe {
        assert_eq!(corrnoise_shard_select(handles.shard, ranges.as_ptr(), 3, &mut selected), Status::Ok);
        let options = corrnoise_capi::CpuOptions { threads: 3, compact: 1, prepare_threads: 2 };
        let status = corrnoise_mechanism_new(handles.plan, handles.key, selected, &options, &mut noise);
        assert_eq!(status, Status::Ok);
    }
    for step in 0..PLAN_STEPS {
        if step == 3 {
            let nonce: [u8; 16] = std::array::from_fn(|i| (i * 3 + 1) as u8);
            let (ours, theirs) = (folder.path().join("rust"), file(&folder.path().join("c")));
            rust.save(&ours).unwrap();
            let resume = Resume::SharedIncarnation(nonce);
            // Each run resumes from the other's file.
            // SAFETY: handles, lists and texts are this function's own.
            unsafe {
                assert_eq!(corrnoise_mechanism_save(noise, theirs.as_ptr()), Status::Ok);
                corrnoise_mechanism_free(noise);
                let (handles, ours) = (Handles::new(), file(&ours));
                let status = corrnoise_mechanism_resume(
                    handles.plan,
                    handles.key,
                    selected,
                    null(),
                    &ours.as_ptr(),
                    1,
                    1,
                    nonce.as_ptr(),
                    &mut noise,
                );
                assert_eq!(status, Status::Ok, "{}", message());
            }
            let files = [folder.path().join("c")];
            rust = Mechanism::resume_cpu(&plan, key(), part.clone(), &files, resume, CpuOptions::default())
                .unwrap();
        }
        let mut expected = gradients(&part, from_f32);
        let mut got = expected.clone();
        rust.add_to_all(&mut expected.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>()).unwrap();
        let pointers: Vec<*mut E> = got.iter_mut().map(Vec::as_mut_ptr).collect();
        // SAFETY: as many pointers as lengths, each to a vector of its own.
        let status = unsafe { entry(noise, pointers.as_ptr(), lengths(&part).as_ptr(), pointers.len()) };
        assert_eq!(status, Status::Ok, "{}", message());
        assert_eq!(got, expected, "step {step}");
    }
    let mut next = 0;
    // SAFETY: the handles are this function's own, and used no more.
    unsafe {
        assert_eq!(corrnoise_mechanism_next_step(noise, &mut next), Status::Ok);
        assert_eq!(next, PLAN_STEPS);
        corrnoise_mechanism_free(noise);
        corrnoise_shard_free(selected);
    }
}

#[test]
fn noise_is_that_of_rust() {
    let (f32_entry, bf16_entry, f16_entry) = ENTRIES;
    compare::<f32>(f32_entry, |value| value);
    compare::<bf16>(bf16_entry, bf16::from_f32);
    compare::<f16>(f16_entry, f16::from_f32);
}

/// A call with bad gradients changes nothing, and the next good call makes step 0.
#[test]
fn refused_gradients_change_nothing() {
    let handles = Handles::new();
    let noise = mechanism(&handles);
    let shard = shard();
    let original = gradients(&shard, |value| value);
    let mut values = original.clone();
    let good: Vec<*mut f32> = values.iter_mut().map(Vec::as_mut_ptr).collect();
    let good_lengths = lengths(&shard);
    let refuse = |pointers: &[*mut f32], lengths: &[usize], count: usize, status: Status, part: &str| {
        // SAFETY: the lists are at least as long as `count`, and the pointers to memory are good for what would be accepted.
        let got = unsafe { corrnoise_add_to_f32(noise, pointers.as_ptr(), lengths.as_ptr(), count) };
        assert_eq!(got, status, "{part}: {}", message());
        assert!(message().contains(part), "{} does not say {part:?}", message());
    };
    let swapped = |index: usize, pointer: *mut f32| {
        let mut pointers = good.clone();
        pointers[index] = pointer;
        pointers
    };
    refuse(&good, &good_lengths, 2, Status::InvalidArgument, "list of gradients has length 2: expected 3");
    let short = [good_lengths[0], good_lengths[1] - 1, good_lengths[2]];
    refuse(&good, &short, 3, Status::InvalidArgument, "gradient 1 has length 9: expected 10");
    refuse(&swapped(1, null_mut()), &good_lengths, 3, Status::NullPointer, "a gradient is NULL");
    let odd = good[0].wrapping_byte_add(1);
    refuse(&swapped(0, odd), &good_lengths, 3, Status::InvalidArgument, "a multiple of 4");
    let inside = good[0].wrapping_add(699);
    refuse(&swapped(1, inside), &good_lengths, 3, Status::InvalidArgument, "does not overlap");
    let high = std::ptr::without_provenance_mut(usize::MAX - 15);
    refuse(&swapped(1, high), &good_lengths, 3, Status::InvalidArgument, "room for 10 values");
    // SAFETY: null is what is tested.
    unsafe {
        let lengths = good_lengths.as_ptr();
        assert_eq!(corrnoise_add_to_f32(noise, null(), lengths, 3), Status::NullPointer);
        assert!(message().contains("gradients is NULL"));
        assert_eq!(corrnoise_add_to_f32(noise, good.as_ptr(), null(), 3), Status::NullPointer);
        assert_eq!(corrnoise_add_to_f32(null(), good.as_ptr(), lengths, 3), Status::NullPointer);
    }
    assert_eq!(values, original);

    let mut rust = Mechanism::cpu(&plan(), key(), shard.clone()).unwrap();
    for _ in 0..PLAN_STEPS {
        let mut expected = original.clone();
        values.clone_from(&original);
        let good: Vec<*mut f32> = values.iter_mut().map(Vec::as_mut_ptr).collect();
        rust.add_to_all(&mut expected.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>()).unwrap();
        // SAFETY: three vectors of the right lengths.
        let status = unsafe { corrnoise_add_to_f32(noise, good.as_ptr(), good_lengths.as_ptr(), 3) };
        assert_eq!(status, Status::Ok);
        assert_eq!(values, expected);
    }
    let before = values.clone();
    let good: Vec<*mut f32> = values.iter_mut().map(Vec::as_mut_ptr).collect();
    refuse(&good, &good_lengths, 3, Status::PastEnd, "step 6 is past the end");
    assert_eq!(values, before);
    // SAFETY: made above.
    unsafe { corrnoise_mechanism_free(noise) };
}

#[test]
fn an_overflow_is_a_step() {
    let handles = Handles::new();
    let noise = mechanism(&handles);
    let shard = shard();
    let mut values = gradients(&shard, |_| f16::INFINITY);
    let pointers: Vec<*mut u16> = values.iter_mut().map(|vector| vector.as_mut_ptr().cast()).collect();
    let mut next = 0;
    // SAFETY: three vectors of the right lengths.
    unsafe {
        let status = corrnoise_add_to_f16(noise, pointers.as_ptr(), lengths(&shard).as_ptr(), 3);
        assert_eq!(status, Status::Overflow);
        assert!(message().contains("f16"), "{}", message());
        assert_eq!(corrnoise_mechanism_next_step(noise, &mut next), Status::Ok);
        corrnoise_mechanism_free(noise);
    }
    assert_eq!(next, 1);
}

#[test]
fn a_foreign_checkpoint_is_refused_and_the_key_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("noise");
    let other = corrnoise::Plan::new(7, corrnoise::Form::independent(), 0.5).unwrap();
    Mechanism::cpu(&other, key(), shard()).unwrap().save(&path).unwrap();
    let (handles, foreign) = (Handles::new(), file(&path));
    let mut noise = std::ptr::dangling_mut();
    let resume = |mode, nonce: *const u8, count, noise: &mut *mut MechanismHandle| {
        // SAFETY: handles and texts are this test's own.
        unsafe {
            corrnoise_mechanism_resume(
                handles.plan,
                handles.key,
                handles.shard,
                null(),
                &foreign.as_ptr(),
                count,
                mode,
                nonce,
                noise,
            )
        }
    };
    assert_eq!(resume(0, null(), 1, &mut noise), Status::Checkpoint);
    assert!(message().contains("it belongs to plan"), "{}", message());
    assert!(noise.is_null(), "a failed call leaves no handle");
    assert_eq!(resume(9, null(), 1, &mut noise), Status::InvalidArgument);
    assert!(message().contains("mode is 9"), "{}", message());
    assert_eq!(resume(1, null(), 1, &mut noise), Status::NullPointer);
    assert!(message().contains("nonce is NULL"), "{}", message());
    assert_eq!(resume(0, null(), 0, &mut noise), Status::InvalidArgument);
    assert!(message().contains("list of checkpoints"), "{}", message());
    std::fs::remove_file(&path).unwrap();
    assert_eq!(resume(0, null(), 1, &mut noise), Status::Io);

    // The key survived all refusals, and serves one mechanism.
    let noise = mechanism(&handles);
    let mut second = null_mut();
    // SAFETY: handles are this test's own.
    unsafe {
        let status = corrnoise_mechanism_new(handles.plan, handles.key, handles.shard, null(), &mut second);
        assert_eq!(status, Status::Key);
        assert!(message().contains("already serves a mechanism"), "{}", message());
        corrnoise_mechanism_free(noise);
    }
}

#[test]
fn plans_keys_and_shards_are_refused_with_a_reason() {
    let handles = Handles::new();
    let (mut plan, mut made, mut shard) = (null_mut(), null_mut(), null_mut());
    let mut buffer = [1_i8; 65];
    let (edited, latin) = (CString::new(common::plan().to_json().replace("0.7", "0.8")).unwrap(), c"\xe9");
    // SAFETY: null and bad texts are what is tested; the rest is this test's own.
    unsafe {
        assert_eq!(corrnoise_plan_from_json(edited.as_ptr(), &mut plan), Status::Plan);
        assert!(message().contains("edited or damaged"), "{}", message());
        assert_eq!(corrnoise_plan_from_json(null(), &mut plan), Status::NullPointer);
        assert_eq!(corrnoise_plan_from_json(edited.as_ptr(), null_mut()), Status::NullPointer);
        assert_eq!(corrnoise_plan_load(c"/no/such/plan".as_ptr(), &mut plan), Status::Io);
        assert_eq!(corrnoise_plan_from_json(latin.as_ptr(), &mut plan), Status::InvalidArgument);
        assert!(message().contains("UTF-8"), "{}", message());
        let fingerprint = |buffer: &mut [i8]| {
            corrnoise_plan_fingerprint(handles.plan, buffer.as_mut_ptr().cast(), buffer.len())
        };
        assert_eq!(fingerprint(&mut buffer[..64]), Status::InvalidArgument);
        assert!(message().contains("length 64: expected at least 65"), "{}", message());
        assert_eq!(buffer, [1; 65], "nothing was written");
        assert_eq!(fingerprint(&mut buffer), Status::Ok);
        let digits: String = buffer[..64].iter().map(|c| *c as u8 as char).collect();
        assert_eq!((digits, buffer[64]), (common::plan().fingerprint().to_string(), 0));

        assert_eq!(corrnoise_key_from_bytes(null(), c"".as_ptr(), &mut made), Status::NullPointer);
        assert_eq!(
            corrnoise_key_from_bytes([1; 32].as_ptr(), latin.as_ptr(), &mut made),
            Status::InvalidArgument
        );
        assert_eq!(corrnoise_key_from_file(c"/no/key".as_ptr(), c"".as_ptr(), &mut made), Status::Io);

        assert_eq!(corrnoise_shard_flat(0, &mut shard), Status::InvalidArgument);
        let (names, lengths) = (names(), [5, 6, 7]);
        let twice = [names[0].as_ptr(), names[1].as_ptr(), names[0].as_ptr()];
        let status = corrnoise_shard_tensors(twice.as_ptr(), lengths.as_ptr(), 3, &mut shard);
        assert_eq!(status, Status::InvalidArgument);
        assert!(message().contains("different names"), "{}", message());
        let mut segment = Range::default();
        assert_eq!(corrnoise_shard_segment(handles.shard, 3, &mut segment), Status::InvalidArgument);
        assert_eq!(corrnoise_shard_segment(handles.shard, 1, &mut segment), Status::Ok);
        assert_eq!(segment, Range { start: 1024, end: 1034 });
        let gap = Range { start: 1000, end: 1024 };
        assert_eq!(corrnoise_shard_select(handles.shard, &gap, 1, &mut shard), Status::InvalidArgument);
        // The second range ends before it starts, and hides that the third overlaps the first.
        let folded = [(0, 600), (900, 10), (300, 1000)].map(|(start, end)| Range { start, end });
        let status = corrnoise_shard_select(handles.shard, folded.as_ptr(), 3, &mut shard);
        assert_eq!(status, Status::InvalidArgument);
        assert!(message().contains("[900..10]: expected no range that ends before"), "{}", message());
        let overlap = [(0, 600), (599, 1000)].map(|(start, end)| Range { start, end });
        let status = corrnoise_shard_select(handles.shard, overlap.as_ptr(), 2, &mut shard);
        assert_eq!(status, Status::InvalidArgument);
        assert!(message().contains("[0..600, 599..1000]: expected ascending and disjoint"), "{}", message());
        corrnoise_plan_free(null_mut());
        corrnoise_key_free(null_mut());
        corrnoise_shard_free(null_mut());
        corrnoise_mechanism_free(null_mut());
    }
    assert!(plan.is_null() && made.is_null() && shard.is_null());
}

/// The ledger and replicas, through the C interface.
#[test]
fn no_noise_twice() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = file(&folder.path().join("ledger"));
    let handles = Handles::new();
    // SAFETY: handles, lists and texts are this function's own.
    unsafe {
        let start = |shard| {
            let (mut key, mut noise) = (null_mut(), null_mut());
            assert_eq!(corrnoise_key_from_bytes([7_u8; 32].as_ptr(), c"run".as_ptr(), &mut key), Status::Ok);
            assert_eq!(corrnoise_key_set_ledger(key, ledger.as_ptr()), Status::Ok);
            let status = corrnoise_mechanism_new(handles.plan, key, shard, null(), &mut noise);
            if status == Status::Ok {
                assert_eq!(corrnoise_key_set_ledger(key, ledger.as_ptr()), Status::Key, "the key is spent");
            }
            corrnoise_key_free(key);
            (status, noise)
        };
        let (status, first) = start(handles.shard);
        assert_eq!(status, Status::Ok);
        assert_eq!(start(handles.shard).0, Status::Repeated);
        assert!(message().contains("alive"), "{}", message());
        corrnoise_mechanism_free(first);
        let mut replica = null_mut();
        assert_eq!(corrnoise_shard_replica(handles.shard, &mut replica), Status::Ok);
        let (one, two) = (start(replica), start(replica));
        assert_eq!((one.0, two.0), (Status::Ok, Status::Ok));
        assert_eq!(start(handles.shard).0, Status::Repeated);
        corrnoise_mechanism_free(one.1);
        corrnoise_mechanism_free(two.1);
        corrnoise_shard_free(replica);
    }
}

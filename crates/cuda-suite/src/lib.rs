//! What a CUDA device must do to be trusted: the same bits as the CPU engine, the same discipline, the same checkpoints.
//!
//! `crates/cuda-sim` runs this suite on its stand-in for libcuda in every `cargo test`; `crates/cuda` runs it on a real driver
//! where there is one. Each says which device it ran on.

pub mod cases;
pub mod compare;
mod context;
mod discipline;
mod ended;
mod known_answers;
mod parity;
mod replay;
mod runner;

pub use runner::{Outcome, run};

use corrnoise::cuda::cudarc::driver::CudaStream;
use std::sync::Arc;

/// A test: panics if the device of this stream does anything wrong.
pub type Test = fn(&Arc<CudaStream>);

/// The suite, the longest first.
pub const TESTS: &[(&str, Test)] = &[
    ("a_million_values_of_every_kernel_f32", parity::a_million_values::<f32>),
    ("a_million_values_of_every_kernel_bf16", parity::a_million_values::<half::bf16>),
    ("a_million_values_of_every_kernel_f16", parity::a_million_values::<half::f16>),
    ("every_kernel_type_and_number_of_rounds", parity::every_kernel_type_and_number_of_rounds),
    ("every_small_case_f32", cases::every_small_case::<f32>),
    ("every_small_case_bf16", cases::every_small_case::<half::bf16>),
    ("every_small_case_f16", cases::every_small_case::<half::f16>),
    ("any_place_in_the_coordinate_space", parity::any_place_in_the_coordinate_space),
    ("several_tensors_are_one_launch", parity::several_tensors_are_one_launch),
    ("unaligned_gradients", parity::unaligned_gradients),
    ("every_sixteen_bit_gradient", parity::every_sixteen_bit_gradient),
    ("long_lists_and_several_incarnations", parity::long_lists_and_several_incarnations),
    ("checkpoints_continue_on_the_other_engine", parity::checkpoints_continue_on_the_other_engine),
    ("known_normals", known_answers::normals),
    ("known_forms", known_answers::forms),
    ("known_gradients", known_answers::gradients),
    ("a_captured_graph_makes_the_same_steps", replay::a_captured_graph_makes_the_same_steps),
    ("a_replay_past_the_end_gives_nan", replay::a_replay_past_the_end_gives_nan),
    ("the_host_does_not_count_while_the_device_does", replay::the_host_does_not_count_while_the_device_does),
    ("a_graph_whose_replay_ended_gives_nan", ended::a_graph_whose_replay_ended_gives_nan),
    ("a_graph_whose_mechanism_is_gone_gives_nan", ended::a_graph_whose_mechanism_is_gone_gives_nan),
    ("a_mechanism_dropped_within_a_capture", ended::a_mechanism_dropped_within_a_capture),
    ("a_capture_refuses_what_it_would_repeat", ended::a_capture_refuses_what_it_would_repeat),
    ("enqueue_without_a_capture_counts", ended::enqueue_without_a_capture_counts),
    ("every_call_leaves_the_callers_context", context::every_call_leaves_the_callers_context),
    ("bad_gradients_are_refused", discipline::bad_gradients_are_refused),
    ("an_overflow_is_found", discipline::an_overflow_is_found),
];

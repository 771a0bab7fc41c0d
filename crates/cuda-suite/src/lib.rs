//! The test suite of a CUDA device: the same bits as the CPU engine, the same refusals, the same checkpoints.
//!
//! `crates/cuda-sim` runs this suite on its stand-in for libcuda in every `cargo test`; `crates/cuda` runs it on a real driver
//! where there is one. Each says which device it ran on.

mod ahead;
pub mod cases;
pub mod compare;
mod context;
mod discipline;
mod ended;
mod host_made;
mod known_answers;
mod parity;
mod replay;
mod runner;
pub mod values;

pub use runner::{Outcome, run};

use corrnoise::cuda::cudarc::driver::CudaStream;
use std::sync::Arc;

/// A test: panics if the device of this stream does anything wrong.
pub type Test = fn(&Arc<CudaStream>);

/// The tests of the suite, the longest first.
pub const TESTS: &[(&str, Test)] = &[
    ("a_million_values_of_every_kernel_f32", parity::a_million_values::<f32>),
    ("a_million_values_of_every_kernel_bf16", parity::a_million_values::<half::bf16>),
    ("a_million_values_of_every_kernel_f16", parity::a_million_values::<half::f16>),
    ("a_million_values_of_every_row_ahead_f32", ahead::a_million_values::<f32>),
    ("a_million_values_of_every_row_ahead_bf16", ahead::a_million_values::<half::bf16>),
    ("a_million_values_of_every_row_ahead_f16", ahead::a_million_values::<half::f16>),
    ("every_way_of_every_form", ahead::every_way_of_every_form),
    ("every_way_type_and_number_of_rounds", ahead::every_way_type_and_number_of_rounds),
    ("long_tables_of_rows_ahead", ahead::long_tables),
    ("several_tensors_with_rows_ahead", ahead::several_tensors),
    ("interruptions_between_prepare_and_step", ahead::interruptions_between_prepare_and_step),
    ("host_made_every_form_f32", host_made::every_form_of_one_segment::<f32>),
    ("host_made_every_form_bf16", host_made::every_form_of_one_segment::<half::bf16>),
    ("host_made_every_form_f16", host_made::every_form_of_one_segment::<half::f16>),
    ("host_made_several_tensors", host_made::several_tensors_and_windows),
    ("host_made_checkpoints", host_made::checkpoints_of_every_engine),
    ("host_made_small_shards", host_made::small_shards),
    ("host_made_refuses_a_capture", host_made::a_capture_is_refused),
    ("host_made_overflow_and_bad_gradients", host_made::an_overflow_is_found_and_bad_gradients_are_refused),
    ("host_made_leaves_the_context", host_made::every_call_leaves_the_callers_context),
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
    ("a_schedule_has_the_plans_grid", discipline::a_schedule_has_the_plans_grid),
];

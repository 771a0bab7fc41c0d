//! The exported driver functions, as cudarc 0.19 looks them up: plain or `_v2`, never `_ptsz`.
//!
//! Each is a thin C wrapper: [`boundary`](self) counts the call, runs the body, and turns a failure, or even a panic, into a
//! status whose text `cuGetErrorString` returns. The bodies lock one device at a time, so tests on different ordinals run in
//! parallel.
//!
//! # Safety
//!
//! The contract is NVIDIA's: a pointer is null or valid for what the function reads or writes through it, and a host range is
//! as long as its byte count. Device addresses and handles may be anything; they are looked up, never followed.
#![allow(non_snake_case, reason = "the names are NVIDIA's")]
#![allow(clippy::missing_safety_doc, reason = "one contract for all, given above")]

mod boundary;
mod capture;
mod context;
mod count;
mod device;
mod event;
mod graph;
mod handle;
mod hooks;
mod launch;
mod memory;
mod module;
mod order;
mod secrets;
mod spoil;
mod state;
mod stream;

pub use boundary::{Out, cuGetErrorName, cuGetErrorString};
pub use capture::{cuStreamBeginCapture_v2, cuStreamEndCapture, cuStreamIsCapturing};
pub use context::{
    cuCtxGetCurrent, cuCtxGetDevice, cuCtxGetStreamPriorityRange, cuCtxSetCurrent, cuCtxSynchronize,
    cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxRetain,
};
pub use device::{
    cuDeviceGet, cuDeviceGetAttribute, cuDeviceGetCount, cuDeviceGetName, cuDeviceGetUuid,
    cuDeviceGetUuid_v2, cuDeviceTotalMem_v2, cuDriverGetVersion, cuGetExportTable, cuInit,
};
pub use event::{
    cuEventCreate, cuEventDestroy_v2, cuEventElapsedTime, cuEventQuery, cuEventRecord, cuEventSynchronize,
};
pub use graph::{
    cuGraphDestroy, cuGraphExecDestroy, cuGraphInstantiateWithFlags, cuGraphLaunch, cuGraphUpload,
};
pub use handle::Handle;
pub use hooks::{
    corrnoise_sim_calls, corrnoise_sim_delay, corrnoise_sim_layout, corrnoise_sim_mutate,
    corrnoise_sim_mutate_clear, corrnoise_sim_reset_traffic, corrnoise_sim_traffic,
};
pub use launch::{
    cuFuncGetAttribute, cuLaunchKernel, cuOccupancyMaxActiveBlocksPerMultiprocessor,
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
};
pub use memory::{
    cuMemAlloc_v2, cuMemAllocAsync, cuMemAllocHost_v2, cuMemFree_v2, cuMemFreeAsync, cuMemFreeHost,
    cuMemGetInfo_v2, cuMemHostAlloc, cuMemcpyDtoD_v2, cuMemcpyDtoDAsync_v2, cuMemcpyDtoH_v2,
    cuMemcpyDtoHAsync_v2, cuMemcpyHtoD_v2, cuMemcpyHtoDAsync_v2, cuMemcpyPeerAsync, cuMemsetD8_v2,
    cuMemsetD8Async,
};
pub use module::{cuModuleGetFunction, cuModuleGetGlobal_v2, cuModuleLoadData, cuModuleUnload};
pub use stream::{
    cuStreamCreate, cuStreamCreateWithPriority, cuStreamDestroy_v2, cuStreamGetPriority, cuStreamQuery,
    cuStreamSynchronize, cuStreamWaitEvent,
};

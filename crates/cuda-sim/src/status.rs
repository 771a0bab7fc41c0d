//! Driver status codes, and the failure that carries one together with its explanation.

use std::fmt;

/// The driver's `CUresult`: only codes that every CUDA 12 header knows, because cudarc turns them into an enum without checking.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are NVIDIA's and `text` explains each")]
pub enum Status {
    Success = 0,
    InvalidValue = 1,
    OutOfMemory = 2,
    NotInitialized = 3,
    InvalidDevice = 101,
    InvalidImage = 200,
    InvalidContext = 201,
    NoBinaryForGpu = 209,
    InvalidPtx = 218,
    UnsupportedPtxVersion = 222,
    InvalidHandle = 400,
    IllegalState = 401,
    NotFound = 500,
    NotReady = 600,
    IllegalAddress = 700,
    LaunchTimeout = 702,
    ContextIsDestroyed = 709,
    MisalignedAddress = 716,
    LaunchFailed = 719,
    NotSupported = 801,
    StreamCaptureUnsupported = 900,
    StreamCaptureInvalidated = 901,
    StreamCaptureUnmatched = 903,
    StreamCaptureUnjoined = 904,
    StreamCaptureIsolation = 905,
    CapturedEvent = 907,
    Unknown = 999,
}

impl Status {
    /// Every status code that this library returns.
    pub(crate) const ALL: [Status; 27] = [
        Status::Success,
        Status::InvalidValue,
        Status::OutOfMemory,
        Status::NotInitialized,
        Status::InvalidDevice,
        Status::InvalidImage,
        Status::InvalidContext,
        Status::NoBinaryForGpu,
        Status::InvalidPtx,
        Status::UnsupportedPtxVersion,
        Status::InvalidHandle,
        Status::IllegalState,
        Status::NotFound,
        Status::NotReady,
        Status::IllegalAddress,
        Status::LaunchTimeout,
        Status::ContextIsDestroyed,
        Status::MisalignedAddress,
        Status::LaunchFailed,
        Status::NotSupported,
        Status::StreamCaptureUnsupported,
        Status::StreamCaptureInvalidated,
        Status::StreamCaptureUnmatched,
        Status::StreamCaptureUnjoined,
        Status::StreamCaptureIsolation,
        Status::CapturedEvent,
        Status::Unknown,
    ];

    /// NVIDIA's name of the status, and its text when no failure left a better one.
    pub(crate) fn name_and_text(self) -> (&'static std::ffi::CStr, &'static std::ffi::CStr) {
        match self {
            Status::Success => (c"CUDA_SUCCESS", c"no error"),
            Status::InvalidValue => (c"CUDA_ERROR_INVALID_VALUE", c"invalid argument"),
            Status::OutOfMemory => (c"CUDA_ERROR_OUT_OF_MEMORY", c"out of memory"),
            Status::NotInitialized => (c"CUDA_ERROR_NOT_INITIALIZED", c"cuInit was not called"),
            Status::InvalidDevice => (c"CUDA_ERROR_INVALID_DEVICE", c"invalid device ordinal"),
            Status::InvalidImage => (c"CUDA_ERROR_INVALID_IMAGE", c"module image is not PTX text"),
            Status::InvalidContext => (c"CUDA_ERROR_INVALID_CONTEXT", c"no context, or a stale one"),
            Status::NoBinaryForGpu => (c"CUDA_ERROR_NO_BINARY_FOR_GPU", c"PTX for a newer device"),
            Status::InvalidPtx => (c"CUDA_ERROR_INVALID_PTX", c"PTX refused"),
            Status::UnsupportedPtxVersion => (c"CUDA_ERROR_UNSUPPORTED_PTX_VERSION", c"PTX too new"),
            Status::InvalidHandle => (c"CUDA_ERROR_INVALID_HANDLE", c"invalid resource handle"),
            Status::IllegalState => (c"CUDA_ERROR_ILLEGAL_STATE", c"not possible in this state"),
            Status::NotFound => (c"CUDA_ERROR_NOT_FOUND", c"named symbol not found"),
            Status::NotReady => (c"CUDA_ERROR_NOT_READY", c"device not ready"),
            Status::IllegalAddress => (c"CUDA_ERROR_ILLEGAL_ADDRESS", c"illegal memory access"),
            Status::LaunchTimeout => (c"CUDA_ERROR_LAUNCH_TIMEOUT", c"the kernel does not end"),
            Status::ContextIsDestroyed => (c"CUDA_ERROR_CONTEXT_IS_DESTROYED", c"context is destroyed"),
            Status::MisalignedAddress => (c"CUDA_ERROR_MISALIGNED_ADDRESS", c"misaligned address"),
            Status::LaunchFailed => (c"CUDA_ERROR_LAUNCH_FAILED", c"unspecified launch failure"),
            Status::NotSupported => (c"CUDA_ERROR_NOT_SUPPORTED", c"operation not supported"),
            Status::StreamCaptureUnsupported => {
                (c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", c"not permitted while the stream captures")
            }
            Status::StreamCaptureInvalidated => {
                (c"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", c"an earlier error spoilt the capture")
            }
            Status::StreamCaptureUnmatched => {
                (c"CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", c"the stream did not begin this capture")
            }
            Status::StreamCaptureUnjoined => {
                (c"CUDA_ERROR_STREAM_CAPTURE_UNJOINED", c"a stream of the capture was not joined")
            }
            Status::StreamCaptureIsolation => {
                (c"CUDA_ERROR_STREAM_CAPTURE_ISOLATION", c"a dependency would leave the capture")
            }
            Status::CapturedEvent => (c"CUDA_ERROR_CAPTURED_EVENT", c"the event belongs to a capture"),
            Status::Unknown => (c"CUDA_ERROR_UNKNOWN", c"unknown error"),
        }
    }
}

/// A failed call: the driver's status code, and the reason in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub status: Status,
    pub text: String,
}

impl Failure {
    pub(crate) fn new(status: Status, text: impl Into<String>) -> Self {
        Self { status, text: text.into() }
    }

    pub(crate) fn invalid_value(text: impl Into<String>) -> Self {
        Self::new(Status::InvalidValue, text)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.status, self.text)
    }
}

//! An open device that is opened anew after it failed, so that a kernel that faults does not take all later checks with it.

use super::cases::{Case, Point};
use super::compare::{Difference, in_words};
use crate::failure::{Failure, Result};
use crate::parse::Device;
use crate::verify::Finding;
use corrnoise::examine::{self, Examine, Facts};

/// A comparison of the device with the CPU engine, on so many coordinates.
pub type Compare = fn(&dyn Examine, &Case, &Point, u64) -> Difference;

/// The device, while it works.
pub struct Session {
    device: Device,
    open: Option<Box<dyn Examine>>,
}

impl Session {
    pub fn open(device: Device) -> corrnoise::Result<Session> {
        Ok(Session { device, open: Some(examine::open(device)?) })
    }

    pub fn facts(&mut self) -> Result<Facts> {
        Ok(self.device()?.facts()?)
    }

    /// The device, in a fresh context if the last one was given up.
    pub fn device(&mut self) -> Result<&dyn Examine> {
        if self.open.is_none() {
            self.open = Some(examine::open(self.device)?);
        }
        self.open.as_deref().ok_or_else(|| Failure::input("the device is closed"))
    }

    /// Gives the context up: after a fault, nothing works in it.
    pub fn give_up(&mut self) {
        self.open = None;
    }

    /// Carries out one comparison. One that cannot be carried out has not passed.
    pub fn compare(&mut self, compare: Compare, case: &Case, point: &Point, coords: u64) -> Result<Finding> {
        match self.device().and_then(|device| compare(device, case, point, coords)) {
            Ok(None) => Ok(Finding::new(true, "equal")),
            Ok(Some(difference)) => Ok(Finding::new(false, difference)),
            Err(failure) => {
                self.give_up();
                Ok(Finding::new(false, in_words(failure)?))
            }
        }
    }
}

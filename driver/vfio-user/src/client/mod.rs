//! The side of the driver.

//! Virtual Interface Architecture on user-space NICs.

//! What goes in front of each frame, either way (VIRTIO 1.2, 5.1.6).

/// Bytes of `struct virtio_net_hdr` with VERSION_1. Without offloads all of them are 0 in a frame to send, and
/// say nothing in a received one: num_buffers is 1 without MRG_RXBUF.
pub(super) const HEADER: usize = 12;

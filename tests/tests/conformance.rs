//! Every driver on every model of a device it drives, in this process and over vfio-user. A new NIC adds its lines.

use uvia_models::machine::Kind::{E1000, Virtio, VirtioPacked};
use uvia_models::serve::Doorbells::{Polled, Trapped};
use uvia_tests::bench::{InProcess, PackedRings, RingsInAdapterMemory, Served, SharedMemory};
use uvia_tests::conformance;

conformance!(e1000: InProcess::new([E1000, E1000]));
conformance!(virtio: InProcess::new([Virtio, Virtio]));
// Devices that offer packed rings, with split ones and with what they offer.
conformance!(virtio_packed: InProcess::new([VirtioPacked, VirtioPacked]));
conformance!(packed_rings: PackedRings(InProcess::new([VirtioPacked, VirtioPacked])));
conformance!(e1000_to_virtio: InProcess::new([E1000, Virtio]));

// Transmit rings in adapter memory: one that the device writes its reports into, one that it only reads, and a packed one.
conformance!(rings_there_e1000: RingsInAdapterMemory::new(InProcess::new([E1000, E1000])));
conformance!(rings_there_virtio: RingsInAdapterMemory::new(InProcess::new([Virtio, Virtio])));
conformance!(rings_there_packed: RingsInAdapterMemory::new(PackedRings(InProcess::new([VirtioPacked, VirtioPacked]))));

conformance!(served_e1000 by shared memory: Served::new([E1000, E1000], Polled));
conformance!(served_virtio by shared memory: Served::new([Virtio, Virtio], Polled));
conformance!(served_e1000_to_virtio_packed: Served::new([E1000, VirtioPacked], Trapped));
conformance!(served_packed_rings by shared memory: PackedRings(Served::new([VirtioPacked, VirtioPacked], Polled).sampled()));

// There is no cable to pull, and no device that could be removed.
conformance!(shared_memory on one host: SharedMemory::new());

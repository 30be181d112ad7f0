//! PCI network adapters driven from user space: VFIO, DMA memory, NIC drivers.

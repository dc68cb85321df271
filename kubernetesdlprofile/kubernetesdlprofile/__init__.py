"""The library for training scripts: `from kubernetesdlprofile import kubeprofiler`."""

__version__ = "0.9.0"

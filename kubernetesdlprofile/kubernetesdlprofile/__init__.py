"""The library for training scripts: `from kubernetesdlprofile import kubeprofiler`."""

__version__ = "1.0.0"

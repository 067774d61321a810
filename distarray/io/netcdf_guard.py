"""Check of paths before the NetCDF library opens them: no links to other files; OPeNDAP URLs.

When the library opens a file, it also opens all files to which the file refers. Therefore the file
is checked first, by h5py.
"""

import re

from distarray.errors import OtherFileError
from distarray.io.hdf5_handles import open_shared
from distarray.io.hdf5_links import HDF5Names
from distarray.io.ordinary_files import ELSEWHERE
from distarray.lazy import needs

__all__ = ["check_netcdf"]

#: URLs of OPeNDAP, a server's data, which cannot refer to a file of this machine.
_DAP = re.compile(r"(https?|dap[24]?s?)://[^#]*(#(mode=)?dap[24]?|#)?", re.IGNORECASE)
_CLASSIC = b"CDF"
_ALL = "NetCDF opens all of a file at once; format='hdf5' reads what else is in this one"
_HDF4 = b"\x0e\x03\x13\x01"


def check_netcdf(path: str) -> None:
    """Raise if a file refers to other files, or if a URL is not one of OPeNDAP.

    Parameters
    ----------
    path : str
        An absolute path, or a URL.
    """
    if "://" in path:
        if not _DAP.fullmatch(path):
            raise OtherFileError(
                f"{path}: of URLs, NetCDF reads those of OPeNDAP (http, https), without #mode=; a "
                f"file behind any other may lead to files of this machine, and {ELSEWHERE}"
            )
        return
    with open(path, "rb") as file:
        start = file.read(len(_HDF4))
    if start.startswith(_CLASSIC):
        return
    h5py = needs("h5py")
    if h5py.is_hdf5(path):
        file, close = open_shared(h5py, path, locking="best-effort")
        try:
            refused = HDF5Names(h5py, file, external=False).refused
        finally:
            close()
        for name, why in refused.items():
            raise OtherFileError(f"{path}: {name!r} {why}. {_ALL}")
    elif start == _HDF4:
        raise OtherFileError(f"{path} is an HDF4 file, which may be stored in others: {ELSEWHERE}")

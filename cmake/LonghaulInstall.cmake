# find_package(longhaul) for others; filled in by the packaging step.

# find_package(longhaul) for others: library, public headers and package files, as the component `library`.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/longhaul)

install(TARGETS longhaul EXPORT longhaulTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library)
install(DIRECTORY include/longhaul DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT library FILES_MATCHING PATTERN *.h)
install(FILES ${PROJECT_BINARY_DIR}/include/longhaul/version.h
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/longhaul COMPONENT library)
install(EXPORT longhaulTargets NAMESPACE longhaul:: DESTINATION ${package_dir} COMPONENT library)

configure_package_config_file(cmake/longhaulConfig.cmake.in longhaulConfig.cmake INSTALL_DESTINATION ${package_dir})
# Before 1.0 every minor version may change the interface.
write_basic_package_version_file(longhaulConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/longhaulConfig.cmake ${PROJECT_BINARY_DIR}/longhaulConfigVersion.cmake
  DESTINATION ${package_dir} COMPONENT library)

# Rules of `make install PREFIX=...` and `cmake --install`: the program, its man pages and shell completions (which the
# program itself writes), decks, jobscripts (which find the program of their prefix), and a module file for Lmod and Environment Modules.
include(GNUInstallDirs)
set_target_properties(gyrfalcon PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)  # for libraries outside the system folders
install(TARGETS gyrfalcon)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/input/ DESTINATION share/gyrfalcon/input)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/src/changes.md DESTINATION share/doc/gyrfalcon)
install(FILES ${PROJECT_SOURCE_DIR}/jobscripts/demo.svg DESTINATION share/doc/gyrfalcon/jobscripts)  # image in README.md
set(jobscripts job launcher pbs-cpu pbs-gpu pbs-gpu8 rank_gpu slurm-array slurm-cpu slurm-gpu slurm-gpu8 submit)
list(TRANSFORM jobscripts REPLACE "(.+)" "${PROJECT_SOURCE_DIR}/jobscripts/\\1.sh")
install(PROGRAMS ${jobscripts} DESTINATION share/gyrfalcon/jobscripts)
install(FILES ${PROJECT_SOURCE_DIR}/jobscripts/start.sh ${PROJECT_SOURCE_DIR}/jobscripts/site.example.sh DESTINATION share/gyrfalcon/jobscripts)
install(CODE "
  set(prefix \"\${CMAKE_INSTALL_PREFIX}\")
  cmake_path(ABSOLUTE_PATH prefix NORMALIZE)
  set(version ${PROJECT_VERSION})
  set(root \"\$ENV{DESTDIR}\${prefix}\")
  configure_file(\"${PROJECT_SOURCE_DIR}/jobscripts/modulefile.in\" \"\${root}/share/modulefiles/gyrfalcon/\${version}\" @ONLY)
  execute_process(COMMAND \"\${root}/bin/gyrfalcon\" manual \"\${root}\" RESULT_VARIABLE code ERROR_VARIABLE why OUTPUT_QUIET)
  if(NOT code EQUAL 0)
    message(WARNING \"man pages and shell completions are not installed, because the program does not run on this machine. Run gyrfalcon manual \${prefix} where it does. Error: \${why}\")
  endif()
  message(STATUS \"to use it: module use \${prefix}/share/modulefiles && module load gyrfalcon, or PATH=\${prefix}/bin:$PATH\")
")
